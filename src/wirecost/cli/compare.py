"""`wirecost compare`: two breakdowns, or traces, side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.errors import WirecostError, one_of

if TYPE_CHECKING:
    from wirecost.compare import Comparison

_FORMATS = ("table", "json")


def compare(
    before: Annotated[str, typer.Argument(help="A breakdown's JSON file, or traces (file, directory, glob).")],
    after: Annotated[str, typer.Argument(help="The same, of the other run.")],
    format_: Annotated[str, typer.Option("--format", "-f", help="table or json.", metavar="FORMAT")] = "table",
) -> None:
    """Compare two runs: what got faster, what slower, and whether the samples can tell."""
    if format_ not in _FORMATS:
        raise WirecostError(one_of("format", format_, _FORMATS))
    from wirecost.compare import compare as compare_breakdowns
    from wirecost.load import load_breakdown

    comparison = compare_breakdowns(load_breakdown(before), load_breakdown(after))
    if format_ == "json":
        typer.echo(json.dumps(comparison.to_dict(), indent=1, allow_nan=False))
    else:
        _show(comparison)


def _show(c: Comparison) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from wirecost.compare import WORDS
    from wirecost.text import printable

    def ms(ns: float | None) -> str:
        return "unknown" if ns is None else f"{ns / 1e6:,.3f}"

    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.1%}"

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=160)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("per iteration and rank")
    for side, source in (("before", c.before_source), ("after", c.after_source)):
        table.add_column(f"{side} ms ({source.value})", justify="right")
        table.add_column("share", justify="right")
    table.add_column("change ms", justify="right")
    for p in c.parts:
        table.add_row(
            WORDS[p.part], ms(p.before_ns), share(p.before_share), ms(p.after_ns), share(p.after_share),
            f"{p.change_ns / 1e6:+,.3f}",
        )  # fmt: skip
    table.add_row(
        "iteration (median, slowest rank)", ms(c.before_iteration_ns), "", ms(c.after_iteration_ns), "",
        "" if c.before_iteration_ns is None or c.after_iteration_ns is None
        else f"{(c.after_iteration_ns - c.before_iteration_ns) / 1e6:+,.3f}",
    )  # fmt: skip
    console.print(table)
    console.print()
    if c.collectives:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("collective", "group"):
            table.add_column(name)
        for name in ("count before", "after", "ms before", "after", "bytes before", "after"):
            table.add_column(name, justify="right")
        for row in c.collectives:
            cells = [
                row.op, row.group, _count(row.before_count), _count(row.after_count), ms(row.before_ns),
                ms(row.after_ns), _count(row.before_bytes), _count(row.after_bytes),
            ]  # fmt: skip
            table.add_row(*(Text(printable(cell)) for cell in cells))
        console.print(table)
        console.print()
    for line in c.summary:
        console.print(Text(printable(line)))


def _count(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"
