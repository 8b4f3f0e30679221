"""The iteration over a range of bandwidths, and the knee of that curve."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wirecost.errors import WirecostError
from wirecost.units import BitsPerSecond, format_rate_bps, parse_rate_bps
from wirecost.whatif.changes import with_network
from wirecost.whatif.job import Job
from wirecost.whatif.measure import measure
from wirecost.whatif.network import stated_network
from wirecost.whatif.question import Question

POINTS = 12
_KNEE = 0.05
"""The knee: from this bandwidth on, an infinite one would save less than this share of the iteration."""


@dataclass(frozen=True)
class Point:
    """One bandwidth of a sweep and the iteration there."""

    bandwidth_bps: float
    iteration_ms: float
    comm_fraction: float | None

    @property
    def name(self) -> str:
        return format_rate_bps(BitsPerSecond(self.bandwidth_bps), 3)


@dataclass(frozen=True)
class Sweep:
    """The curve. `knee_bps` is the smallest bandwidth from which on more of it saves less than 5 %; None where
    that is beyond the range. `floor_ms` is the iteration with transfers that take no time."""

    points: tuple[Point, ...]
    knee_bps: float | None
    floor_ms: float


def bandwidth_range(text: str) -> tuple[float, float]:
    """Returns the ends of a range like `1 Gb/s:400 Gb/s` in bits per second.

    Raises:
        WirecostError: for anything else.
    """
    first, colon, last = text.partition(":")
    try:
        low, high = parse_rate_bps(first.strip()), parse_rate_bps(last.strip())
    except ValueError as error:
        raise WirecostError(f"--sweep: {error}; a range is like '1 Gb/s:400 Gb/s'") from error
    if not colon or not 0 < low < high:
        raise WirecostError(f"--sweep: a range is like '1 Gb/s:400 Gb/s', not '{text}'")
    return low, high


def sweep(job: Job, question: Question, range_text: str, latency_s: float | None = None) -> Sweep:
    """Returns the iteration over a range of bandwidths, together with the other changes of a question."""
    low, high = bandwidth_range(range_text)
    base = job.scenario(question)
    speeds = replace(job.speeds(question), network=1.0)
    points = []
    for rate in np.geomspace(low, high, POINTS):
        measured = measure(with_network(base, job.stated_network(float(rate), latency_s)), speeds)
        points.append(Point(float(rate), measured.iteration_ns * 1e-6, measured.comm_fraction))
    floor = measure(with_network(base, stated_network(1e18, 0.0)), speeds).iteration_ns * 1e-6
    return Sweep(tuple(points), _knee(points, floor), floor)


def _knee(points: list[Point], floor_ms: float) -> float | None:
    """Returns where the curve comes within 5 % of its floor, between points by the logarithm of the bandwidth."""
    limit = floor_ms * (1 + _KNEE)
    times = [p.iteration_ms for p in points]
    inside = next((i for i, t in enumerate(times) if t <= limit), None)
    if inside is None:
        return None
    if inside == 0:
        return points[0].bandwidth_bps
    above, below = points[inside - 1], points[inside]
    share = (above.iteration_ms - limit) / max(above.iteration_ms - below.iteration_ms, 1e-12)
    return float(above.bandwidth_bps * (below.bandwidth_bps / above.bandwidth_bps) ** share)
