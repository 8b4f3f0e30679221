"""Builds the terminal tables of a study's report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

from rich import box
from rich.table import Table
from rich.text import Text

from wirecost.report import overview
from wirecost.report.cells import DISTURBED
from wirecost.report.compression import compressions
from wirecost.report.largest_batch import largest_batches
from wirecost.report.memory import peak_rows
from wirecost.report.profiled import profiled
from wirecost.report.records import EXPECTATION_TOLERANCE, SpeedUp
from wirecost.report.study_report import StudyReport
from wirecost.text import printable
from wirecost.units import format_ns, format_rate_bps, format_size_bytes

T = TypeVar("T")


def links(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table of the networks' rates, measured after shaping while every host sends."""
    table = make_table("Links: nominal, and measured after shaping with every host sending at once (TCP)")
    for name in ("network", "transport", "nominal", "slowest run", "fastest run"):
        table.add_column(name, justify="left" if name in ("network", "transport") else "right")
    for link in _first(report.links(), most, table):
        table.add_row(
            Text(report.network_label(link.network)),
            Text(printable(link.transport)),
            link.nominal,
            format_rate_bps(link.slowest_bps, 3) if link.slowest_bps else "unknown",
            format_rate_bps(link.fastest_bps, 3) if link.fastest_bps else "unknown",
        )
    return table


def benchmarks(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table of the networks' all-reduce benchmarks, measured before training."""
    table = make_table("All-reduce on each network, benchmarked before training")
    for name in ("network", "ranks", "latency", "bus bandwidth", "of"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for b in _first(report.benchmarks, most, table):
        if b.largest_bytes is None:
            row = ["none", Text(printable(b.reason or "")), ""]
        else:
            row = [
                format_ns(b.latency_ns, 3) if b.latency_ns is not None else "unknown",
                f"{b.measured_Bps * 1e-9:.3g} GB/s" if b.measured_Bps else "unknown",
                format_size_bytes(b.largest_bytes),
            ]
        table.add_row(Text(report.network_label(b.network)), str(b.ranks), *row)
    return table


def speed_ups(report: StudyReport) -> Table:
    """Returns the table of speed-ups. A row is a workload at a scale, a column a slower network."""
    rows = report.speed_ups()
    slower = [n for n in report.networks if any(s.slow == n for s in rows)]
    counts = sorted({n for s in rows for n in (s.ratio.n_numerator, s.ratio.n_denominator)})
    fast = {s.fast for s in rows}
    how = (
        "ratio of mean iteration times over repeats (95 % interval; "
        if report.over_repeats
        else ("ratio of median iteration times (95 % bootstrap interval; ")
    )
    table = make_table(f"Speed-up of {' or '.join(sorted(fast))}: {how}n = {number_range(counts)} each)")
    table.add_column("workload")
    table.add_column("scale")
    if len(fast) > 1:
        table.add_column("of")
    for network in slower:
        table.add_column(Text(f"over {report.network_label(network)}"), justify="right")
    for (plan, workload, scale, of), group in groupby(rows, key=lambda s: (s.plan, s.workload, s.scale, s.fast)):
        by_network = {s.slow: s for s in group}
        name = f"{workload}, {plan}" if len(report.plans) > 1 else workload
        table.add_row(
            Text(name),
            Text(scale.label),
            *([Text(of)] if len(fast) > 1 else []),
            *(Text(_speed_up(by_network.get(n))) for n in slower),
        )
    return table


def _speed_up(speed_up: SpeedUp | None) -> str:
    if speed_up is None:
        return "-"
    ratio = speed_up.ratio
    mark = DISTURBED if speed_up.disturbed else ""
    return f"{ratio.value:.2f}x ({ratio.low:.2f}-{ratio.high:.2f}){mark}"


def speed_up_shares(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table of aggregated speed-ups, with one row for each pair of networks."""
    table = make_table(
        "Speed-up of one network over another: geometric mean over experiments of the ratio of iteration times "
        "(faster: its 95 % interval lies above 1)"
    )
    table.add_column("network")
    table.add_column("over")
    for name in ("mean", "lowest", "highest", "faster"):
        table.add_column(name, justify="right")
    for row in _first(overview.speed_up_shares(report), most, table):
        table.add_row(
            Text(report.network_label(row.fast)),
            Text(report.network_label(row.slow)),
            f"{row.mean:.2f}x",
            f"{row.lowest:.2f}x",
            f"{row.highest:.2f}x",
            f"{row.sure} of {row.cells}",
        )
    return table


def expectations(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table that compares measured transfers with bytes / rate. With `most` it shows the runs with the
    largest deviation.
    """
    rows = report.expectations()
    n_held = sum(e.holds for e in rows)
    table = make_table(
        f"Expected from bytes and rate: {n_held} of {len(rows)} runs within {EXPECTATION_TOLERANCE:.0%} "
        f"(transfer of one all-reduce, wait left out; n = {number_range(sorted({e.calls for e in rows}))})"
    )
    for name in ("workload", "network", "scale"):
        table.add_column(name)
    for name in ("measured", "expected", "deviation"):
        table.add_column(name, justify="right")
    for e in rows if most is None else _first(overview.deviating(rows), most, table):
        table.add_row(
            Text(e.cell.workload),
            Text(report.network_label(e.cell.network)),
            Text(e.cell.scale.label),
            f"{format_ns(e.measured_ns, 3)}{e.cell.mark}",
            format_ns(e.expected_ns, 3),
            Text(f"{e.deviation:+.1%}", style="" if e.holds else "red"),
        )
    return table


def gradient_traffic(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table of saved bytes and losses for plans that differ in their gradient traffic."""
    rows = compressions(report)
    counts = sorted({len(c.losses) for c in rows})
    table = make_table(
        f"Gradient traffic: what a rank sends in an iteration (each collective on a ring), and the loss "
        f"of the first and last of n = {number_range(counts)} iterations"
    )
    for name in ("workload", "network", "scale", "plan", "traffic"):
        table.add_column(name)
    for name in ("sent", "saved", "first loss", "last loss"):
        table.add_column(name, justify="right")
    for c in _first(rows, most, table):
        table.add_row(
            Text(c.cell.workload),
            Text(report.network_label(c.cell.network)),
            Text(c.cell.scale.label),
            Text(c.cell.plan),
            c.traffic,
            f"{format_size_bytes(c.sent_bytes, 4) if c.sent_bytes is not None else 'unknown'}{c.cell.mark}",
            f"{c.saved:.1%}" if c.saved is not None else "unknown",
            *(f"{loss:.4f}" if loss is not None else "unknown" for loss in (c.first_loss, c.last_loss)),
        )
    return table


def profiled_windows(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table of hidden and exposed communication in the profiled windows."""
    sources = ", ".join(sorted({p.profile.source for p in profiled(report)}))
    table = make_table(
        f"Overlap in a window under {sources}, after the measured iterations "
        "(shares of an iteration, medians over its iterations of the mean over ranks; overlap is of communication)"
    )
    for name in ("workload", "network", "plan", "scale"):
        table.add_column(name)
    for name in ("n", "overlapped", "exposed", "overlap"):
        table.add_column(name, justify="right")
    for p in _first(profiled(report), most, table):
        table.add_row(
            Text(p.cell.workload),
            Text(report.network_label(p.cell.network)),
            Text(p.cell.plan),
            Text(p.cell.scale.label),
            str(p.profile.asked_iterations),
            p.overlapped,
            f"{p.exposed}{p.cell.mark}",
            p.overlap,
        )
    return table


def what_ifs(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table of predictions from other experiments' traces, beside what was measured."""
    table = make_table("What-if answers from other experiments' traces: predicted and measured iteration, ms")
    for name in ("from", "workload", "network", "plan", "scale"):
        table.add_column(name)
    for name in ("predicted", "measured", "error"):
        table.add_column(name, justify="right")
    for w in _first(report.what_ifs, most, table):
        table.add_row(
            Text(f"{report.network_label(w.base.network)}, {w.base.plan}"),
            Text(w.cell.workload),
            Text(report.network_label(w.cell.network)),
            Text(w.cell.plan),
            Text(w.cell.scale.label),
            w.text,
            f"{w.measured_ms:,.1f}{w.cell.mark}",
            w.verdict,
        )
    return table


def largest_batch(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table of the largest micro-batches that fit into memory."""
    table = make_table("Largest micro-batch that fits into memory")
    for name in ("workload", "plan"):
        table.add_column(name)
    for name in ("ranks", "memory", "fits", "runs out", "trials"):
        table.add_column(name, justify="right")
    for row in _first(largest_batches(report), most, table):
        table.add_row(
            Text(row.workload),
            Text(row.plan),
            str(row.ranks),
            format_size_bytes(row.memory_bytes) if row.memory_bytes is not None else "of the device",
            str(row.largest) if row.largest is not None else "none",
            str(row.smallest_oom) if row.smallest_oom is not None else "not reached",
            str(row.trials),
        )
    return table


def peak_memory(report: StudyReport, most: int | None = None) -> Table:
    """Returns the table of peak memory.

    With `most` it shows runs that exhausted memory, then the largest peaks.
    """
    table = make_table("Peak memory of a rank over the measured iterations, the largest over ranks and networks")
    for name in ("workload", "plan", "scale", "what"):
        table.add_column(name)
    table.add_column("peak", justify="right")
    table.add_column("reserved", justify="right")
    rows = peak_rows(report)
    if most is not None:
        rows.sort(key=lambda row: (row.peak.out is None, -(row.peak.peak_bytes or 0)))
    for row in _first(rows, most, table):
        reserved = row.peak.reserved_bytes
        table.add_row(
            Text(row.workload),
            Text(row.plan),
            Text(row.scale.label),
            row.what,
            Text(f"{row.size}{row.mark}", style="red" if row.peak.out else ""),
            format_size_bytes(reserved) if reserved is not None else "-",
        )
    return table


def _first(rows: Sequence[T], most: int | None, table: Table) -> Sequence[T]:
    """Returns the rows that are shown. The table's caption gives the number of those that are not."""
    if most is None or len(rows) <= most:
        return rows
    table.caption = Text(f"and {len(rows) - most} more: --only narrows the report down, --all shows all")
    table.caption_justify = "left"
    return rows[:most]


def make_table(title: str) -> Table:
    return Table(
        title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False
    )


def number_range(counts: list[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
