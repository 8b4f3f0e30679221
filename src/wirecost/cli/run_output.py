"""Prints what `wirecost run` measured, in each format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from wirecost.cli.output import console, print_csv, table

if TYPE_CHECKING:
    from wirecost.breakdown import Share
    from wirecost.report.job_rows import JobRow
    from wirecost.report.turning_point import TurningPoint


def show(results: Any, format: str) -> None:
    """Prints a run's table, and where another network would change it."""
    from wirecost.report.job_rows import as_dict, job_rows
    from wirecost.report.turning_point import turning_points

    rows = job_rows(results)
    points = turning_points(rows)
    if format == "json":
        data = {
            "schema_version": 1,
            "rows": [as_dict(row) for row in rows],
            "half_of_iteration": [vars(point) for point in points],
            "diagnostics": [
                {"network": r.experiment.network.name, **d.as_json()}
                for r in results
                if r.breakdown
                for d in r.breakdown.diagnostics
            ],
        }
        typer.echo(json.dumps(data, indent=1, allow_nan=False))
    elif format == "csv":
        print_csv([as_dict(row) for row in rows])
    else:
        _print(rows, points, results, format)


def _print(rows: list[JobRow], points: list[TurningPoint], results: Any, format: str) -> None:
    from rich.text import Text

    from wirecost.cli.output import print_diagnostics
    from wirecost.study import Status
    from wirecost.text import printable
    from wirecost.units import format_rate_bps

    out = console(format)
    measured = [row for row in rows if row.iteration_ns is not None]
    several = len({(row.workload, row.ranks) for row in measured}) > 1
    if measured:
        counts = sorted({row.iteration_ns.n for row in measured if row.iteration_ns})
        n = "/".join(map(str, counts))
        head = (
            *(("workload", "ranks") if several else ()),
            "network", "iteration", "exposed", "hidden", "transfer", "wait", "transport", "link use", "ratio",
        )  # fmt: skip
        body = [_cells(row, _network(row, measured), several=several) for row in measured]
        ranks = f"{measured[0].ranks} ranks, " if not several else ""
        title = (
            f"{ranks}median iteration of the slowest rank (quartiles; n = {n}), shares of an iteration of "
            "communication"
        )
        out.print(table(title, head, body))
    for row in rows:
        if row.status is not Status.DONE:
            line = f"{row.network}: {row.status}: {printable(row.reason or 'no reason known')}"
            out.print(Text(line, style="red"), soft_wrap=True)
        elif row.unknown is not None:
            out.print(Text(f"{row.network}: shares {printable(row.unknown)}", style="yellow"), soft_wrap=True)
    for point in points:
        who = f"{printable(point.workload)}, {point.ranks} ranks: " if several else ""
        low, high = (None if r is None else format_rate_bps(r, 3) for r in (point.low_bps, point.high_bps))
        if low and high:
            where = f"at a rate between {low} and {high}"
        elif high:
            where = f"at a rate below {high}; these networks give no lower bound"
        elif low:
            where = f"at a rate above {low}; these networks give no upper bound"
        else:
            where = "at an unknown rate"
        out.print(Text(f"{who}Exposed communication is half of the iteration {where}."), soft_wrap=True)
    if any(row.emulated for row in measured):
        out.print(
            Text("Networks are emulated on this machine; shares are of the profiled window."), soft_wrap=True
        )
    seen = {d for r in results if r.breakdown for d in r.breakdown.diagnostics}
    print_diagnostics(out, sorted(seen, key=lambda d: (d.code, d.message)))


def _network(row: JobRow, rows: Sequence[JobRow]) -> str:
    """Returns the name of a row's network, with the hosts if as many ranks were on others as well."""
    same = {r.hosts for r in rows if (r.workload, r.network, r.ranks) == (row.workload, row.network, row.ranks)}
    return row.network if len(same) == 1 else f"{row.network}, {row.hosts} host{'s' * (row.hosts != 1)}"


def _cells(row: JobRow, network: str, *, several: bool) -> list[str]:
    from wirecost.units import format_rate_bps

    time, ratio = row.iteration_ns, row.ratio
    assert time is not None
    use = "unknown"
    if row.mean_use_bps is not None:
        share = f" ({row.mean_use_bps / row.rate_bps:.0%})" if row.rate_bps else ""
        use = f"{format_rate_bps(row.mean_use_bps, 3)}{share}"
    return [
        *((row.workload, str(row.ranks)) if several else ()),
        network,
        f"{_ms(time.median)} ms ({_ms(time.q1)}-{_ms(time.q3)})",
        *map(_share, (row.exposed, row.hidden, row.transfer, row.wait)),
        row.transport or "unknown",
        use,
        "1" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})",
    ]


def _ms(time_ns: float) -> str:
    """Returns a time in milliseconds with three digits, or without decimals."""
    return f"{time_ns * 1e-6:.3g}" if time_ns < 999.5e6 else f"{time_ns * 1e-6:.0f}"


def _share(share: Share | None) -> str:
    return "unknown" if share is None else share.text(0)
