"""The rate of a network below which exposed communication takes more than half of an iteration.

Exposed communication e is a function of the time x = 1 / rate that a bit takes. With computation c that doesn't
depend on the network, an iteration takes c + e(x). Transfers take time in proportion to x, and computation
hides a part of them. So e never falls with x, it is convex, and it grows by at most v, the time of all
transfers per x. These three properties bound e between and beyond the measured rates, and with it the rate at
which e = c. Where they give no bound, the interval is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from wirecost.report.job_rows import JobRow


@dataclass(frozen=True)
class Measured:
    """A command over a network with a known rate.

    Attributes:
        x: seconds per bit.
        exposed_low_s, exposed_high_s: interval of the exposed communication of an iteration.
        compute_low_s, compute_high_s: interval of the rest of the iteration.
        slope: largest growth of the exposed communication for each second per bit, or None if unknown.
    """

    x: float
    exposed_low_s: float
    exposed_high_s: float
    compute_low_s: float
    compute_high_s: float
    slope: float | None


@dataclass(frozen=True)
class TurningPoint:
    """The rate at which exposed communication is half of an iteration, between `low_bps` and `high_bps`. None
    means that the data give no bound on that side."""

    workload: str
    ranks: int
    low_bps: float | None
    high_bps: float | None


def turning_points(rows: Sequence[JobRow]) -> list[TurningPoint]:
    """Returns the turning point of every command with a known share of communication over a known rate."""
    groups: dict[tuple[str, int], list[Measured]] = {}
    for row in rows:
        if (measured := _measured(row)) is not None:
            groups.setdefault((row.workload, row.ranks), []).append(measured)
    return [TurningPoint(workload, ranks, *turning_rates(points)) for (workload, ranks), points in groups.items()]


def _measured(row: JobRow) -> Measured | None:
    if row.rate_bps is None or row.exposed is None or row.iteration_ns is None or not row.emulated:
        return None
    time_s = row.iteration_ns.median * 1e-9
    low_s, high_s = row.exposed.low * time_s, row.exposed.high * time_s
    slope = None
    if row.transfer is not None and row.hidden is not None:
        # Hidden communication becomes exposed at most as a whole.
        slope = (row.transfer.high + row.hidden.high) * time_s * row.rate_bps
    return Measured(1 / row.rate_bps, low_s, high_s, time_s - high_s, time_s - low_s, slope)


def turning_rates(points: Sequence[Measured]) -> tuple[float | None, float | None]:
    """Returns the bounds (low, high) of the rate in bits per second at which exposed communication equals the rest
    of the iteration. None is no bound."""
    if not points:
        return None, None
    compute_low_s = min(p.compute_low_s for p in points)
    compute_high_s = max(p.compute_high_s for p in points)
    ordered = sorted(points, key=lambda p: p.x)
    # Networks that are certainly faster than the turning point, and those that are certainly slower.
    faster = [p for p in ordered if p.exposed_high_s < compute_low_s]
    slower = [p for p in ordered if p.exposed_low_s >= compute_high_s]
    earliest = [p.x for p in faster]
    latest = [p.x for p in slower]
    if earliest and latest and max(earliest) >= min(latest):
        return None, None  # other causes than the rate decide
    for p in faster:
        if p.slope:
            earliest.append(p.x + (compute_low_s - p.exposed_high_s) / p.slope)
    for p in slower:
        if p.slope:
            latest.append(p.x - (p.exposed_low_s - compute_high_s) / p.slope)
    # Between two points a convex function lies below the line through them, and beyond them above it.
    for first in faster:
        for second in slower:
            growth = (second.exposed_high_s - first.exposed_high_s) / (second.x - first.x)
            earliest.append(first.x + (compute_low_s - first.exposed_high_s) / growth)
    latest += _beyond(faster, slower, compute_high_s)
    # A bound that no rate fulfils says that the rate isn't what decides.
    low_x, high_x = max(earliest, default=None), min((x for x in latest if x > 0), default=None)
    if low_x is not None and high_x is not None and low_x > high_x:
        bracket = [p.x for p in faster], [p.x for p in slower]
        low_x, high_x = max(bracket[0], default=None), min(bracket[1], default=None)
    return (None if high_x is None else 1 / high_x), (None if low_x is None else 1 / low_x)


def _beyond(faster: Sequence[Measured], slower: Sequence[Measured], compute_high_s: float) -> list[float]:
    """Returns bounds of the turning point in seconds per bit, by lines through two networks on one side of it."""
    latest = []
    for first, second in pairwise(faster):
        growth = _growth(first.exposed_high_s, second.exposed_low_s, second.x - first.x)
        if growth:
            latest.append(second.x + (compute_high_s - second.exposed_low_s) / growth)
    for first, second in pairwise(slower):
        growth = _growth(first.exposed_low_s, second.exposed_high_s, second.x - first.x)
        if growth:
            latest.append(first.x - (first.exposed_low_s - compute_high_s) / growth)
    return latest


def _growth(first_s: float, second_s: float, distance: float) -> float | None:
    """Returns the growth from one point to another over a distance, or None if there is none."""
    return (second_s - first_s) / distance if distance > 0 and second_s > first_s else None
