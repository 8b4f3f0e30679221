"""Prints the terminal table in nccl-tests' columns, so that programs that read those can read it.

All other information is on lines that begin with `#`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wirecost._version import __version__
from wirecost.collectives.efficiency import Fitted
from wirecost.collectives.expectation import LinkShare
from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.collectives.readers.base import Table
from wirecost.collectives.request import BenchRequest, Mode
from wirecost.collectives.result import BenchNetwork, Row
from wirecost.text import printable
from wirecost.units import format_ns, format_rate_bps, format_size_bytes

NAME_WIDTH = 12


def number(value: float | None, width: int) -> str:
    """Returns a value in `width` characters with as many decimals as fit, at most two; N/A if unknown."""
    if value is None:
        return f"{'N/A':>{width}}"
    for decimals in (2, 1, 0):
        text = f"{value:>{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:>{width}.{1 if width >= 7 else 0}e}"


def network_line(network: BenchNetwork) -> str:
    """Returns a line that describes the network and its measured rates."""
    name = printable(network.name or "unknown")
    text = f"network: {name} ({'emulated on this machine' if network.emulated else 'native'})"
    if network.nominal_rate_bps:
        text += f", nominal {format_rate_bps(network.nominal_rate_bps)}"
    if network.measured_rate_bps:
        text += f", TCP goodput measured {format_rate_bps(network.measured_rate_bps, 3)}"
    if network.round_trip_ns:
        text += f", round trip {format_ns(network.round_trip_ns, 3)}"
    if network.transport is not None:
        words = f" ({', '.join(map(printable, network.reported))})" if network.reported else ""
        text += f", NCCL reported {network.transport}{words}"
    if network.doubt is not None:
        text += f"; {printable(network.doubt)}"
    return text


def header(request: BenchRequest, network: BenchNetwork, collective: str) -> list[str]:
    iterations = request.iterations or "auto"
    many = len(request.groups)
    groups = f"{many} groups of {request.group_size} ranks at once" if many > 1 else f"{request.ranks} ranks"
    lines = [
        f"# wirecost {__version__} bench: {collective} over {request.backend}, {groups} on {request.hosts} "
        f"{'hosts' if request.hosts > 1 else 'host'}",
        f"# nThread 1 nGpus 1 minBytes {min(request.sizes_bytes)} maxBytes {max(request.sizes_bytes)} "
        f"warmup iters: {request.warmup} iters: {iterations} validation: {int(request.check)} "
        f"graph: {int(request.graph)}",
        "#",
        f"# {network_line(network)}",
    ]
    if many > 1:
        lines.append(f"# busbw is the slowest group's alone; {many} groups share each host's link")
    return [*lines, *columns()]


def columns() -> list[str]:
    """Returns nccl-tests' column titles."""
    row = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {}"
    kinds = f"{'out-of-place':^31}  {'in-place':^31}"
    cells = f"{'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
    units = f"{'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
    return [
        "#",
        row.format("", "", "", "", "", kinds).rstrip(),
        row.format("size", "count", "type", "redop", "root", f"{cells}  {cells}"),
        row.format("(B)", "(elements)", "", "", "", f"{units}  {units}").rstrip(),
    ]


def line(rows: Sequence[Row]) -> str:
    """Returns the line of one size with both modes side by side, N/A for a mode that wasn't measured."""
    first = rows[0]
    by_mode = {row.mode: row for row in rows}
    start = (
        f"{first.size_bytes:>12}  {first.count:>12}  {printable(first.dtype[:20]):>8}  "
        f"{printable(first.redop[:10] if first.redop else 'none'):>6}  "
        f"{-1 if first.root is None else first.root:>6}"
    )
    return start + "".join(_cells(by_mode.get(mode)) for mode in (Mode.OUT_OF_PLACE, Mode.IN_PLACE))


def _cells(row: Row | None) -> str:
    if row is None:
        return f"  {number(None, 7)}  {number(None, 6)}  {number(None, 6)}  {'N/A':>6}"
    wrong = "N/A" if row.wrong is None else str(row.wrong)
    algbw = None if row.algbw_Bps is None else row.algbw_Bps * 1e-9
    busbw = None if row.busbw_Bps is None else row.busbw_Bps * 1e-9
    return f"  {number(row.time_ns * 1e-3, 7)}  {number(algbw, 6)}  {number(busbw, 6)}  {wrong:>6}"


def barrier_line(row: Row) -> str:
    return f"# barrier: {_percentiles(row)}"


def footer(rows: Sequence[Row], collective: str, *, checked: bool) -> Iterator[str]:
    """Yields the messages' percentiles, then nccl-tests' last lines."""
    if any(r.p50_ns is not None for r in rows):
        yield "#"
        yield "# single messages: time without the wait for the last rank; wait is the first rank's for the last"
        for row in sorted(rows, key=lambda r: (r.mode is Mode.IN_PLACE, r.size_bytes)):
            mode = "in-place" if row.mode is Mode.IN_PLACE else "out-of-place"
            mark = "  mostly within the shaper's bucket: not held to the cap" if row.unshaped else ""
            yield f"# {format_size_bytes(row.size_bytes):>10}  {mode:>12}  {_percentiles(row)}{mark}"
        yield "#"
    wrong = sum(r.wrong or 0 for r in rows)
    if checked:
        yield f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}"
    bandwidths = [r.busbw_Bps for r in rows if r.busbw_Bps is not None]
    if bandwidths:
        yield f"# {'Avg bus bandwidth':<20} : {sum(bandwidths) / len(bandwidths) * 1e-9:g} "
    yield "#"
    yield f"# Collective test concluded: {COLLECTIVES[collective].perf_name}"
    yield "#"


def fit_lines(fitted: Sequence[Fitted]) -> Iterator[str]:
    """Yields lines with each fit and its error."""
    for series in fitted:
        mode = "in-place" if series.mode is Mode.IN_PLACE else "out-of-place"
        start = f"# fit {series.collective}, {series.ranks} ranks, {mode}"
        aside = (
            f"; {series.left_aside} sizes left aside, the shaper's bucket falsifies them"
            if series.left_aside
            else ""
        )
        if series.fit is None or series.bus_bandwidth_Bps is None:
            yield f"{start}: {series.refusal}{aside}"
            continue
        low, high = series.fit.slope_interval
        latency = " to ".join(format_ns(max(0.0, v), 3) for v in series.fit.latency_interval_ns)
        bandwidth = " to ".join(f"{series.factor / slope:.4g}" for slope in (high, low))
        breaks = ", ".join(format_size_bytes(b) for b in series.fit.curve.breaks) or "none"
        yield f"{start}: {len(series.fit.sizes)} sizes, breakpoints: {breaks}{aside}"
        yield f"#   latency        {format_ns(series.fit.latency_ns, 3)} (90 % interval {latency})"
        yield f"#   bus bandwidth  {series.bus_bandwidth_Bps * 1e-9:.4g} GB/s (90 % interval {bandwidth})"
        yield (
            f"#   error          {100 * series.fit.error:.1f} % median on sizes left out one at a time, largest "
            f"{100 * max(map(abs, series.fit.left_out)):.0f} %"
        )


def _percentiles(row: Row) -> str:
    shown = {"p50": row.p50_ns, "p95": row.p95_ns, "p99": row.p99_ns, "wait": row.wait_ns}
    times = "  ".join(f"{name} {'-' if v is None else format_ns(v, 3):>8}" for name, v in shown.items())
    spread = ""
    if len(row.rounds_ns) > 1:
        spread = f"  rounds {format_ns(min(row.rounds_ns), 3)} to {format_ns(max(row.rounds_ns), 3)}"
    return f"{times}  n {row.messages or '?'}{spread}"


def share_lines(share: LinkShare | None) -> Iterator[str]:
    """Yields lines that compare a table's bandwidth with its links and with NCCL's expectation."""
    if share is None:
        return
    busbw = f"{share.busbw_Bps * 1e-9:.4g} GB/s of bus bandwidth ({format_size_bytes(share.size_bytes)})"
    if share.links_Bps is None or share.share is None:
        yield f"# links: {busbw}; {printable(share.unknown or 'not known')}"
        return
    links = f"{share.links_Bps * 1e-9:.4g} GB/s that {share.links}"
    line = f"# links: {busbw} are {100 * share.share:.0f} % of the {links}"
    if share.expected_Bps is not None and share.expected_share is not None:
        expected = f"{share.expected_Bps * 1e-9:.4g} GB/s that NCCL's own model expects of {share.algorithm}"
        line += f", {100 * share.expected_share:.0f} % of the {expected}"
    yield f"{line} ({printable(share.source or '')})"
    if share.share > 1.0:
        yield "#   more than 100 %: not everything crosses these links, since nodes or switches reduce first"
    if share.cause is not None:
        yield f"#   far below; the usual cause: {share.cause}"


def read_table(table: Table) -> Iterator[str]:
    """Yields the lines of a table that another tool measured."""
    rows = table.rows
    name, ranks = table.collective, table.ranks
    groups = f"{table.groups} groups of {ranks} ranks" if table.groups > 1 else f"{ranks} ranks"
    yield f"# wirecost {__version__} bench: {name} over unknown, {groups}, read"
    if name == BARRIER:
        yield f"# barrier: {format_ns(rows[0].time_ns, 3)}"
        return
    yield from columns()
    # A size that was measured in several cycles has several lines.
    cycles: dict[tuple[int, Mode], int] = {}
    lines: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        cycle = cycles[row.size_bytes, row.mode] = cycles.get((row.size_bytes, row.mode), 0) + 1
        lines.setdefault((cycle, row.size_bytes), []).append(row)
    for same in lines.values():
        yield line(same)
