"""What the commands share for printing: formats, tables, numbers. Text from files is escaped."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from wirecost.diagnostics import Diagnostic, Severity, lines_of
from wirecost.errors import SpecError, one_of
from wirecost.text import printable

FORMATS = ("text", "json", "csv", "markdown", "latex")
"""The formats of every command that prints a table."""
FORMAT = typer.Option("--format", metavar="FORMAT", help="text, json, csv, markdown or latex.")
"""The option of these commands."""
MAX_CHARACTERS = 300
"""Longest text of a cell or a title. Names are shorter."""
_NUMBER = re.compile(r"[-+0-9.,%a-z/ ]*")
WIDTH_WITHOUT_TERMINAL = 160
"""Columns of a table that goes to a file or a pipe, unless COLUMNS says otherwise."""


def check_format(value: str, allowed: Sequence[str] = FORMATS) -> str:
    """Returns the name of a format. `table` is a former name of `text`.

    Raises:
        SpecError: if the format isn't one of `allowed`.
    """
    name = "text" if value == "table" else value
    if name not in allowed:
        raise SpecError(one_of("format", value, allowed))
    return name


def console(format: str = "text") -> Any:
    """Returns what tables and lines are printed on: a terminal, or for `markdown` and `latex` a `TableWriter`."""
    from rich.console import Console

    if format in ("markdown", "latex"):
        return TableWriter(format)
    out = Console(highlight=False)
    if not out.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        out = Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    return out


class TableWriter:
    """Prints the tables that a command prints as Markdown or LaTeX, and none of its other lines."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.width = 10**6
        self._first = True

    def print(self, *objects: object, **_options: object) -> None:
        """Prints those of `objects` that are tables."""
        from rich.table import Table

        from wirecost.cli.markup import as_latex, as_markdown

        for each in objects:
            if isinstance(each, Table):
                if not self._first:
                    typer.echo()
                self._first = False
                typer.echo((as_markdown if self.format == "markdown" else as_latex)(each))


def print_csv(rows: Sequence[Mapping[str, Any]], columns: Iterable[str] | None = None) -> None:
    """Prints rows as CSV, with the keys of the first row as columns."""
    from wirecost.csv_text import rows_to_csv

    names = list(columns) if columns is not None else list(rows[0]) if rows else []
    typer.echo(rows_to_csv(names, rows), nl=False)


STYLES = {Severity.OK: "green", Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
"""How a terminal shows the severities of diagnostics."""


def print_diagnostics(out: Any, diagnostics: Iterable[Diagnostic]) -> None:
    """Prints each diagnostic as "SEVERITY CODE: MESSAGE", with its remedy on a line of its own."""
    from rich.text import Text

    for diagnostic in diagnostics:
        first, *remedy = lines_of(diagnostic)
        lead, colon, message = first.partition(": ")
        line = Text(lead + colon, style=STYLES[diagnostic.severity]).append(message, style="default")
        out.print(line, soft_wrap=True)
        for line in remedy:
            out.print(Text(line), soft_wrap=True)


def safe(value: object) -> str:
    """Returns text for a terminal, without control characters and rich markup."""
    from rich.markup import escape

    text = str(value)
    return escape(printable(text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."))


def table(title: str, head: Sequence[str], body: Sequence[Sequence[object]]) -> Any:
    """Returns a rich Table. Columns of numbers are aligned on the right."""
    from rich import box
    from rich.table import Table

    made = Table(title=safe(title), box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for index, name in enumerate(head):
        made.add_column(
            safe(name),
            justify="right" if index > 0 and _are_numbers(line[index] for line in body) else "left",
            overflow="fold",
        )
    for line in body:
        made.add_row(*(safe(cell) for cell in line))
    return made


def _are_numbers(cells: Iterable[object]) -> bool:
    """Returns whether the cells of a column are numbers with units, words in lower case among them."""
    texts = [str(cell) for cell in cells]
    return any(text[:1].isdigit() for text in texts) and all(_NUMBER.fullmatch(text) for text in texts)


def percent(value: float | None, digits: int = 1, *, sign: bool = False) -> str:
    """Returns a share as text in percent, and `-` for None."""
    if value is None:
        return "-"
    return f"{100 * value:{'+' if sign else ''}.{digits}f} %"


def plain(value: float | None, digits: int = 3, *, sign: bool = False) -> str:
    """Returns a number as text, and `-` for None."""
    if value is None:
        return "-"
    return f"{value:{'+' if sign else ''}.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"
