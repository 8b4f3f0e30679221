"""What the model's commands share for printing: tables, numbers, formats. Text from files is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from wirecost.errors import SpecError, one_of
from wirecost.text import printable

MOST_CHARACTERS = 300
"""Of a cell or a title; names are shorter."""


def check_format(value: str, allowed: Sequence[str] = ("text", "json")) -> None:
    if value not in allowed:
        raise SpecError(one_of("format", value, allowed))


def console() -> Any:
    from rich.console import Console

    out = Console(highlight=False)
    if not out.is_terminal:
        out = Console(highlight=False, width=max(out.width, 150))
    return out


def safe(value: object) -> str:
    """Text for a terminal: no control characters, no rich markup."""
    from rich.markup import escape

    text = str(value)
    return escape(printable(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."))


def table(title: str, head: Sequence[str], body: Sequence[Sequence[object]]) -> Any:
    from rich import box
    from rich.table import Table

    made = Table(title=safe(title), box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for index, name in enumerate(head):
        numeric = body and all(re.fullmatch(r"[-+0-9.,%a-z/ ]*", str(line[index])) for line in body) and index > 0
        made.add_column(safe(name), justify="right" if numeric else "left", overflow="fold")
    for line in body:
        made.add_row(*(safe(cell) for cell in line))
    return made


def percent(value: float | None, digits: int = 1, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{100 * value:{'+' if sign else ''}.{digits}f} %"


def plain(value: float | None, digits: int = 3, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:{'+' if sign else ''}.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"
