"""A study's report on the terminal."""

from __future__ import annotations

from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirecost.report.compression import compressions
from wirecost.report.memory import peak_rows
from wirecost.report.profiled import profiled
from wirecost.report.study_report import EXPECTATION_TOLERANCE, StudyReport
from wirecost.text import printable
from wirecost.units import format_ns, format_rate_bps, format_size_bytes


def print_report(report: StudyReport, console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    for plan in report.plans:
        console.print(fractions(report, plan))
        console.print()
    console.print(links(report))
    for link in report.links():
        if link.use is not None:
            console.print(
                Text(f"Link use during iterations, {report.network_label(link.network)}: {link.use}"),
                soft_wrap=True,
            )
    if report.benchmarks:
        console.print()
        console.print(benchmarks(report))
    if report.speed_ups():
        console.print()
        console.print(speed_ups(report))
    if report.expectations():
        console.print()
        console.print(expectations(report))
    if compressions(report):
        console.print()
        console.print(gradient_traffic(report))
    if profiled(report):
        console.print()
        console.print(profiled_windows(report))
        for reason in dict.fromkeys(p.profile.reason for p in profiled(report) if p.profile.reason):
            console.print(Text(f"Profiled window {printable(reason)}", style="yellow"), soft_wrap=True)
    if peak_rows(report):
        console.print()
        console.print(peak_memory(report))
    for one in report.unfinished():
        text = Text(f"{one.status}: {one.what}: {printable(one.reason)}", style="red")
        console.print(text, soft_wrap=True)
    for code, message, count in report.warnings():
        console.print(
            Text(f"note [{code}, {count} experiments]: {printable(message)}", style="yellow"), soft_wrap=True
        )


def fractions(report: StudyReport, plan: str) -> Table:
    """Study A's layout: workload x network down, <ranks, global batch> across."""
    scales = report.scales(plan)
    predicted = "; p: predicted, not measured" if report.predicted else ""
    table = _table(f"Communication as a fraction of the iteration, {plan} (median of n iterations{predicted})")
    table.add_column("workload")
    table.add_column("network")
    for scale in scales:
        table.add_column(Text(f"{scale.scaling}\n{scale}"), justify="right")
    table.add_column("n", justify="right")
    for workload in report.workloads:
        for network in report.networks:
            cells = [report.cell(workload, network, plan, scale) for scale in scales]
            if not any(cells):
                continue
            counts = {c.comm_fraction.n for c in cells if c and c.comm_fraction}
            table.add_row(
                Text(workload),
                Text(report.network_label(network)),
                *(Text(c.text if c else "-") for c in cells),
                "/".join(map(str, sorted(counts))) or "-",
            )
        table.add_section()
    return table


def links(report: StudyReport) -> Table:
    """What each network gave, measured after shaping with every host sending at once."""
    table = _table("Links: nominal, and measured after shaping with every host sending at once (TCP)")
    for name in ("network", "transport", "nominal", "slowest run", "fastest run"):
        table.add_column(name, justify="left" if name in ("network", "transport") else "right")
    for link in report.links():
        table.add_row(
            Text(report.network_label(link.network)),
            Text(link.transport),
            link.nominal,
            format_rate_bps(link.slowest_bps, 3) if link.slowest_bps else "unknown",
            format_rate_bps(link.fastest_bps, 3) if link.fastest_bps else "unknown",
        )
    return table


def benchmarks(report: StudyReport) -> Table:
    """What an all-reduce takes on each network, measured before training."""
    table = _table("All-reduce on each network, benchmarked before training")
    for name in ("network", "ranks", "latency", "bus bandwidth", "of"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for b in report.benchmarks:
        if b.largest_bytes is None:
            row = ["none", Text(printable(b.remark or "")), ""]
        else:
            row = [
                format_ns(b.latency_ns, 3) if b.latency_ns is not None else "unknown",
                f"{b.measured_Bps * 1e-9:.3g} GB/s" if b.measured_Bps else "unknown",
                format_size_bytes(b.largest_bytes),
            ]
        table.add_row(Text(report.network_label(b.network)), str(b.ranks), *row)
    return table


def speed_ups(report: StudyReport) -> Table:
    """Rows: workload at a scale; columns: every slower network."""
    found = report.speed_ups()
    slower = [n for n in report.networks if any(s.slow == n for s in found)]
    counts = sorted({n for s in found for n in (s.ratio.n_numerator, s.ratio.n_denominator)})
    fast = {s.fast for s in found}
    table = _table(
        f"Speed-up of {' or '.join(sorted(fast))}: ratio of median iteration times "
        f"(95 % bootstrap interval; n = {_range(counts)} each)"
    )
    table.add_column("workload")
    table.add_column("scale")
    if len(fast) > 1:
        table.add_column("of")
    for network in slower:
        table.add_column(Text(f"over {report.network_label(network)}"), justify="right")
    for (plan, workload, scale, of), group in groupby(found, key=lambda s: (s.plan, s.workload, s.scale, s.fast)):
        by_network = {s.slow: s.ratio for s in group}
        name = f"{workload}, {plan}" if len(report.plans) > 1 else workload
        ratios = [by_network.get(n) for n in slower]
        table.add_row(
            Text(name),
            Text(scale.label),
            *([Text(of)] if len(fast) > 1 else []),
            *(Text(f"{r.value:.2f}x ({r.low:.2f}-{r.high:.2f})" if r else "-") for r in ratios),
        )
    return table


def expectations(report: StudyReport) -> Table:
    """Is the communication time what bytes and rate say?"""
    found = report.expectations()
    held = sum(e.holds for e in found)
    table = _table(
        f"Expected from bytes and rate: {held} of {len(found)} runs within {EXPECTATION_TOLERANCE:.0%} "
        f"(transfer of one all-reduce, wait left out; n = {_range(sorted({e.calls for e in found}))})"
    )
    for name in ("workload", "network", "scale"):
        table.add_column(name)
    for name in ("measured", "expected", "deviation"):
        table.add_column(name, justify="right")
    for e in found:
        table.add_row(
            Text(e.cell.workload),
            Text(report.network_label(e.cell.network)),
            Text(e.cell.scale.label),
            format_ns(e.measured_ns, 3),
            format_ns(e.expected_ns, 3),
            Text(f"{e.deviation:+.1%}", style="" if e.holds else "red"),
        )
    return table


def gradient_traffic(report: StudyReport) -> Table:
    """Bytes saved beside the loss, where plans differ in their gradient traffic."""
    found = compressions(report)
    counts = sorted({len(c.losses) for c in found})
    table = _table(
        f"Gradient traffic: what a rank sends in an iteration (each collective on a ring), and the loss "
        f"of the first and last of n = {_range(counts)} iterations"
    )
    for name in ("workload", "network", "scale", "plan", "traffic"):
        table.add_column(name)
    for name in ("sent", "saved", "first loss", "last loss"):
        table.add_column(name, justify="right")
    for c in found:
        table.add_row(
            Text(c.cell.workload),
            Text(report.network_label(c.cell.network)),
            Text(c.cell.scale.label),
            Text(c.cell.plan),
            c.traffic,
            format_size_bytes(c.sent_bytes, 4) if c.sent_bytes is not None else "unknown",
            f"{c.saved:.1%}" if c.saved is not None else "unknown",
            *(f"{loss:.4f}" if loss is not None else "unknown" for loss in (c.first_loss, c.last_loss)),
        )
    return table


def profiled_windows(report: StudyReport) -> Table:
    """Communication that compute hides and that it doesn't."""
    sources = ", ".join(sorted({p.profile.source for p in profiled(report)}))
    table = _table(
        f"Overlap in a window under {sources}, after the measured iterations "
        "(shares of an iteration, medians over iterations and ranks; overlap is of communication)"
    )
    for name in ("workload", "network", "plan", "scale"):
        table.add_column(name)
    for name in ("n", "overlapped", "exposed", "overlap"):
        table.add_column(name, justify="right")
    for p in profiled(report):
        table.add_row(
            Text(p.cell.workload),
            Text(report.network_label(p.cell.network)),
            Text(p.cell.plan),
            Text(p.cell.scale.label),
            str(p.profile.asked_iterations),
            p.overlapped,
            p.exposed,
            p.overlap,
        )
    return table


def peak_memory(report: StudyReport) -> Table:
    """The most that a rank held at once."""
    table = _table("Peak memory of a rank over the measured iterations, the largest over ranks and networks")
    for name in ("workload", "plan", "scale", "what"):
        table.add_column(name)
    table.add_column("peak", justify="right")
    table.add_column("reserved", justify="right")
    for row in peak_rows(report):
        reserved = row.peak.reserved_bytes
        table.add_row(
            Text(row.workload),
            Text(row.plan),
            Text(row.scale.label),
            row.what,
            Text(row.size, style="red" if row.peak.out else ""),
            format_size_bytes(reserved) if reserved is not None else "-",
        )
    return table


def _table(title: str) -> Table:
    return Table(
        title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False
    )


def _range(counts: list[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
