"""`wirecost compare`: two breakdowns, or traces, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirecost.cli.output import FORMAT, check_format, console, print_csv
from wirecost.errors import WirecostError

if TYPE_CHECKING:
    from wirecost.comparison.result import Comparison, PartChange
    from wirecost.comparison.studies import Pair, StudyComparison


def compare(
    before: Annotated[
        str,
        typer.Argument(
            help="A breakdown's JSON file, traces (file, directory, glob), an experiment's or a study's directory."
        ),
    ],
    after: Annotated[str, typer.Argument(help="The same, of the other run.")],
    format_: Annotated[str, FORMAT] = "text",
    window: Annotated[
        str,
        typer.Option(help="Where iterations of traces come from: auto, launches, gpu, cpu, whole, name:REGEX."),
    ] = "auto",
) -> None:
    """Compare two runs: what got faster, and what slower.

    It also says whether the iterations are enough to tell."""
    format_ = check_format(format_)
    from wirecost.comparison.breakdowns import compare as compare_breakdowns
    from wirecost.comparison.sources import is_experiment, is_study, load_breakdown

    studies = [is_study(Path(side)) and not is_experiment(Path(side)) for side in (before, after)]
    if any(studies):
        if not all(studies):
            study, other = (before, after) if studies[0] else (after, before)
            raise WirecostError(f"{study} is a study but {other} is not: compare two studies or two experiments")
        _compare_studies(Path(before), Path(after), format_)
        return
    comparison = compare_breakdowns(load_breakdown(before, window=window), load_breakdown(after, window=window))
    if format_ == "json":
        typer.echo(json.dumps(comparison.to_dict(), indent=1, allow_nan=False))
    elif format_ == "csv":
        from wirecost.api.breakdowns import ComparisonView

        print_csv(ComparisonView(comparison).rows())
    else:
        _show(comparison, console(format_))


def _compare_studies(before: Path, after: Path, format_: str) -> None:
    from wirecost.comparison.studies import compare_studies

    comparison = compare_studies(before, after)
    if format_ == "json":
        typer.echo(json.dumps(comparison.to_dict(), indent=1, allow_nan=False))
    elif format_ == "csv":
        print_csv([_pair_row(pair) for pair in comparison.pairs])
    else:
        _show_studies(comparison, console(format_))


def _pair_row(pair: Pair) -> dict[str, Any]:
    c = pair.comparison
    return {
        "workload": pair.workload,
        "plan": pair.plan,
        "network": pair.network,
        "ranks": pair.ranks,
        "before_ms": None if c.before_iteration_ns is None else c.before_iteration_ns * 1e-6,
        "after_ms": None if c.after_iteration_ns is None else c.after_iteration_ns * 1e-6,
        "speedup": None if c.speedup is None else c.speedup.value,
    }


def _show_studies(comparison: StudyComparison, out: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    from wirecost.comparison.summary import speedup_sentence
    from wirecost.text import printable

    for name, (first, second) in comparison.differing.items():
        out.print(Text(printable(f"The studies differ in {name}: {first} and {second}.")))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("workload", "plan", "network"):
        table.add_column(name)
    for name in ("ranks", "before ms", "after ms", "comm fraction", "after"):
        table.add_column(name, justify="right")
    table.add_column("the second")

    def ms(ns: float | None) -> str:
        return "unknown" if ns is None else f"{ns / 1e6:,.3f}"

    for p in comparison.pairs:
        c = p.comparison
        exposed = next(x for x in c.parts if x.part == "exposed_comm_ns")
        change = (
            speedup_sentence(c.speedup, c.sample).removeprefix("The second is ")
            if c.speedup is not None
            else "unknown"
        )
        cells = [
            p.workload, p.plan, p.network, str(p.ranks), ms(c.before_iteration_ns), ms(c.after_iteration_ns),
            _share(exposed, "before"), _share(exposed, "after"), change,
        ]  # fmt: skip
        table.add_row(*(Text(printable(cell)) for cell in cells))
    out.print(table)
    for which, names in (("first", comparison.only_before), ("second", comparison.only_after)):
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            out.print(Text(printable(f"Only the {which} holds {shown}.")))


def _show(c: Comparison, out: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    from wirecost.comparison.summary import WORDS
    from wirecost.text import printable

    def ms(ns: float | None) -> str:
        return "unknown" if ns is None else f"{ns / 1e6:,.3f}"

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("per iteration and rank")
    for side, source in (("before", c.before_source), ("after", c.after_source)):
        widest = max((len(ms(v)) for v in _times(c, side)), default=0)
        table.add_column(f"{side} ms ({source.value})", justify="right", min_width=widest)
        table.add_column("share", justify="right", min_width=6)
    table.add_column("change ms", justify="right", no_wrap=True)
    for p in c.parts:
        table.add_row(
            WORDS[p.part], ms(p.before_ns), _share(p, "before"), ms(p.after_ns), _share(p, "after"),
            "unknown" if p.change_ns is None else f"{p.change_ns / 1e6:+,.3f}",
        )  # fmt: skip
    table.add_row(
        "iteration (median, slowest rank)", ms(c.before_iteration_ns), "", ms(c.after_iteration_ns), "",
        "" if c.before_iteration_ns is None or c.after_iteration_ns is None
        else f"{(c.after_iteration_ns - c.before_iteration_ns) / 1e6:+,.3f}",
    )  # fmt: skip
    out.print(table)
    out.print()
    if c.collectives:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("collective", "group"):
            table.add_column(name, overflow="fold", min_width=10)
        for name, width in (("count", 6), ("ms", 7), ("bytes", 8)):
            table.add_column(f"{name}\nbefore", justify="right", min_width=width)
            table.add_column("\nafter", justify="right", min_width=width)
        for row in c.collectives:
            cells = [
                row.op, row.group, _count(row.before_count), _count(row.after_count), ms(row.before_ns),
                ms(row.after_ns), _size(row.before_bytes), _size(row.after_bytes),
            ]  # fmt: skip
            table.add_row(*(Text(printable(cell)) for cell in cells))
        out.print(table)
        out.print()
    for line in c.summary:
        out.print(Text(printable(line)))


def _times(c: Comparison, side: str) -> list[float | None]:
    """Returns the times in ns that a side's column shows."""
    return [getattr(c, f"{side}_iteration_ns"), *(getattr(p, f"{side}_ns") for p in c.parts)]


def _share(change: PartChange, side: str) -> str:
    """Returns a part's share of an iteration in percent, or its interval."""
    low, high = (getattr(change, f"{side}_share_{end}") for end in ("low", "high"))
    if low is None:
        return "–"
    return f"{low:.1%}" if low == high else f"{100 * low:.1f}-{high:.1%}"


def _size(value: float | None) -> str:
    from wirecost.units import format_size_bytes

    return "unknown" if value is None else format_size_bytes(value, 3)


def _count(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"
