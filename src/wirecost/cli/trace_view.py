"""Prints the output of `wirecost trace`: the answer, the ranks, and requested tables."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirecost.cli.output import STYLES, TableWriter
from wirecost.diagnostics import Diagnostic, lines_of
from wirecost.text import printable

if TYPE_CHECKING:
    from wirecost.trace import TraceSet
    from wirecost.trace.views import View

_FEW_RANKS = 12  # with more ranks, the default answer shows only the relevant ones
_NAME_WIDTH = 14  # least characters of a shortened name: ProfilerStep#3, reduce_scatter
_LABEL_WIDTH = 15
_NO_TERMINAL = 100  # columns without a terminal and COLUMNS


def console(format: str = "text") -> Console | TableWriter:
    """Returns the console: as wide as the terminal, or COLUMNS, or 100 columns into a file or pipe."""
    if format != "text":
        return TableWriter(format)
    out = Console(highlight=False, markup=False)
    if out.is_terminal:
        return out
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isascii() and columns.isdigit() and 0 < int(columns) < 10_000 else _NO_TERMINAL
    return Console(highlight=False, markup=False, width=width)


def show(traces: TraceSet, format: str = "text") -> None:
    """Prints the answer, the ranks by category, and diagnostics that limit the numbers' validity."""
    from wirecost.trace.views import ranks_view

    out = console(format)
    for label, text in traces.answer.brief_lines:
        _line(out, label, text)
    if traces.world_size > 1 and traces.answer.iteration_ns is not None:
        _line(out, "Stragglers", traces.straggler_costs.sentence)
    if traces.profiler_cost is not None:
        _line(out, "Profiler", traces.profiler_cost.sentence.rstrip("."))
    out.print()
    show_view(ranks_view(traces, _FEW_RANKS), out)
    _show_in_full(traces, out)
    _show_diagnostics(traces.notable_diagnostics, out)
    out.print()
    codes = {d.code for t in traces.traces for d in t.diagnostics} | {d.code for d in traces.run_diagnostics}
    more = f"{len(codes)} diagnostic{'s' * (len(codes) > 1)}: --table diagnostics. " if codes else ""
    for line in _wrapped(f"{more}More: --table collectives, kernels, exposed, ...; --html PAGE.", out.width):
        out.print(Text(line, style="dim"))


def _show_diagnostics(diagnostics: Sequence[Diagnostic], out: Console | TableWriter) -> None:
    """Prints each diagnostic as "SEVERITY CODE: MESSAGE" and "-> REMEDY", wrapped at the width."""
    for diagnostic in diagnostics:
        out.print()
        first, *remedy = (_wrapped(line, out.width) for line in lines_of(diagnostic))
        lead = f"{diagnostic.severity} {diagnostic.code}:"
        for number, line in enumerate(first):
            text = Text(line)
            if number == 0:
                text.stylize(STYLES[diagnostic.severity], 0, len(lead))
            out.print(text)
        for line in (line for lines in remedy for line in lines):
            out.print(Text(line))


def _show_in_full(traces: TraceSet, out: Console | TableWriter) -> None:
    """Prints in full the sentences of the answer that are shortened at the top."""
    pairs = zip(traces.answer.lines, traces.answer.brief, strict=True)
    longer = [(label, text) for (label, text), brief in pairs if text != brief and label != "Communication"]
    if longer:
        out.print()
        out.print(Text("In full", style="bold"))
    for label, text in longer:
        _line(out, label, text)


def show_tables(traces: TraceSet, names: Sequence[str], format: str = "text") -> None:
    """Prints tables by name."""
    from wirecost.trace.tables import table_name
    from wirecost.trace.views import VIEWS

    out = console(format)
    for number, name in enumerate([table_name(n) for n in names]):
        if number:
            out.print()
        show_view(VIEWS[name](traces), out)


def _line(out: Console | TableWriter, label: str, text: str) -> None:
    lines = _wrapped(text[:1].upper() + text[1:] + ".", max(20, out.width - _LABEL_WIDTH))
    for number, line in enumerate(lines):
        lead = label if number == 0 else ""
        out.print(Text.assemble((lead.ljust(_LABEL_WIDTH), "bold"), line))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width, break_on_hyphens=False) or [""]


def show_view(view: View, out: Console | TableWriter) -> None:
    """Prints one table within the width. Headers wrap and long names fold; numbers and row names aren't folded."""
    if not view.rows:
        out.print(Text(f"{view.title}: none"))
        return
    numeric = [
        n >= view.text_columns and _numeric([row[n] for row in view.rows]) for n in range(len(view.columns))
    ]
    widths = [
        _least([view.columns[n]], [row[n] for row in view.rows], unbroken=numeric[n])
        for n in range(len(view.columns))
    ]
    # If two spaces between the columns don't fit, one is used.
    narrow = sum(widths) + 2 * (len(widths) - 1) > out.width
    for line in _wrapped(view.title, out.width):
        out.print(Text(line, style="bold"))
    title = view.title if isinstance(out, TableWriter) else None
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=narrow, title=title)
    for name, right, width in zip(view.columns, numeric, widths, strict=True):
        table.add_column(
            Text(printable(name)), justify="right" if right else "left", overflow="fold", min_width=width
        )
    for row in view.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    out.print(table, crop=False)
    if view.note:
        for line in _wrapped(view.note, out.width):
            out.print(Text(line, style="dim"))


def _least(heads: Sequence[str], cells: Sequence[str], *, unbroken: bool) -> int:
    """Returns the least width of a column: that of its longest number, or of the longest word up to a limit."""
    words = [cell_len(printable(word)) for text in (*heads, *(() if unbroken else cells)) for word in text.split()]
    longest = min(max(words, default=0), _NAME_WIDTH)
    return max([longest, *(cell_len(printable(cell)) for cell in cells)]) if unbroken else longest


def _numeric(cells: Sequence[str]) -> bool:
    return all(cell[:1] in "0123456789-+.≥–?" or cell == "unknown" for cell in cells)
