"""Differences between the ranks' clocks, from collectives that end on all ranks together.

No rank can leave an all-reduce before the last one has come and sent its part, so all of them end within the last
step's transfer of each other. A difference between two ranks' ends that stays the same over many collectives is
the difference of their clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from wirecost.trace.match import SYNCHRONOUS, Group
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import Int64

_FEWEST = 3  # collectives that an estimate takes
# Allowed difference due to the last step of a transfer and the clocks of the GPUs of one host.
_FLOOR_NS = 20_000
_SIGMAS = 3
# An estimate is used if it scatters less than this share of the collectives' own time.
_SCATTER_SHARE = 0.25
_FASTEST_DRIFT = 1e-3  # twice the 500 ppm by which NTP may slew a clock
_FEWEST_FOR_DRIFT = 12


class ClockOffset(msgspec.Struct, frozen=True):
    """How far a rank's clock is ahead of the reference rank's, and the evidence for it.

    `offset_ns` is the estimate at the first collective and `drift_ppm` its rate of growth. `scatter_ns` is half of
    the inter-quartile range around the estimate over `collectives` collectives. `taken_out` is whether the rank's
    times were corrected. An estimate that transfer times alone could explain is not applied.
    """

    rank: int
    reference_rank: int
    offset_ns: int
    drift_ppm: float
    scatter_ns: int
    collectives: int
    taken_out: bool


class _Edge(msgspec.Struct):
    """The difference of the clocks of two traces, second less first, over the collectives that both show."""

    first: int
    second: int
    offset_ns: float
    drift: float
    origin_ns: int
    scatter_ns: float
    count: int
    usable: bool
    significant: bool


class Clocks(msgspec.Struct):
    """For each trace the correction of its clock, and which traces' clocks can be compared.

    `correction` holds (offset at `origin_ns`, drift) to be taken off; `comparable` numbers the sets of traces
    whose clocks are known against each other; `scatter_ns` is the uncertainty of a trace's times against the
    reference.
    """

    correction: list[tuple[float, float, int]]
    comparable: list[int]
    scatter_ns: list[int]
    offsets: list[ClockOffset]

    def corrected(self, trace: int, times_ns: Int64) -> Int64:
        """Returns times of a trace on the reference's clock."""
        offset, drift, origin = self.correction[trace]
        if not offset and not drift:
            return times_ns
        return times_ns - np.rint(offset + drift * (times_ns - origin)).astype(np.int64)


def estimate_clocks(traces: Sequence[RankTrace], groups: Sequence[Group]) -> Clocks:
    """Returns the clocks of all traces against the first one's, along the pairs whose estimates scatter least."""
    count = len(traces)
    edges = sorted(
        (e for g in groups for e in _edges(traces, g) if e.usable), key=lambda e: (e.scatter_ns, -e.count)
    )
    correction: list[tuple[float, float, int]] = [(0.0, 0.0, 0)] * count
    scatter = [0] * count
    offsets: list[ClockOffset] = []
    # Absolute clocks count as comparable unless collectives show otherwise.
    absolute = next((number for number, t in enumerate(traces) if t.absolute_clock), 0)
    comparable = [absolute if t.absolute_clock else number for number, t in enumerate(traces)]
    unvisited = set(range(count))
    while unvisited:
        root = min(unvisited)
        unvisited.discard(root)
        reached = {root}
        while edge := next((e for e in edges if (e.first in reached) != (e.second in reached)), None):
            known, new, sign = (
                (edge.first, edge.second, 1) if edge.first in reached else (edge.second, edge.first, -1)
            )
            reached.add(new)
            unvisited.discard(new)
            taken_out = edge.significant or not (traces[known].absolute_clock and traces[new].absolute_clock)
            base, base_drift, base_origin = correction[known]
            base += base_drift * (edge.origin_ns - base_origin)
            if taken_out:
                correction[new] = (base + sign * edge.offset_ns, base_drift + sign * edge.drift, edge.origin_ns)
            else:
                correction[new] = correction[known]
            scatter[new] = max(scatter[known], round(edge.scatter_ns))
            comparable[new] = comparable[known]
            offsets.append(
                ClockOffset(
                    rank=traces[new].rank or 0,
                    reference_rank=traces[root].rank or 0,
                    offset_ns=round(base + sign * edge.offset_ns),
                    drift_ppm=1e6 * (base_drift + sign * edge.drift),
                    scatter_ns=scatter[new],
                    collectives=edge.count,
                    taken_out=taken_out,
                )
            )
    return Clocks(correction, comparable, scatter, sorted(offsets, key=lambda o: o.rank))


def _edges(traces: Sequence[RankTrace], group: Group) -> list[_Edge]:
    """Returns the first member of a group against each other one."""
    numbers = list(group.rows)
    first = numbers[0]
    synchronous = np.array([op in SYNCHRONOUS for op in group.ops(traces)], dtype=bool)
    if len(numbers) > 2:
        synchronous &= np.array([op != "send_recv" for op in group.ops(traces)], dtype=bool)
    if synchronous.sum() < _FEWEST:
        return []
    edges = []
    calls = traces[first].calls
    ends, starts = (c[group.rows[first]][synchronous] for c in (calls.end_ns, calls.start_ns))
    for second in numbers[1:]:
        other = traces[second].calls
        rows = group.rows[second][synchronous]
        difference = other.end_ns[rows] - ends
        shortest = np.minimum(other.end_ns[rows] - other.start_ns[rows], ends - starts)
        edges.append(_edge(first, second, difference, ends, float(np.median(shortest))))
    return edges


def _edge(first: int, second: int, difference: Int64, times: Int64, duration_ns: float) -> _Edge:
    offset, drift, origin = float(np.median(difference)), 0.0, int(times[0])
    scatter = _half_range(difference - offset)
    if len(difference) >= _FEWEST_FOR_DRIFT:
        third = len(difference) // 3
        early, late = float(np.median(difference[:third])), float(np.median(difference[-third:]))
        span = float(np.median(times[-third:]) - np.median(times[:third]))
        slope = (late - early) / span if span > 0 else 0.0
        level = float(np.median(difference - slope * (times - origin)))
        straight = _half_range(difference - level - slope * (times - origin))
        if abs(late - early) > _FLOOR_NS and abs(slope) <= _FASTEST_DRIFT and straight < scatter / 2:
            offset, drift, scatter = level, slope, straight
    largest = max(abs(offset), abs(offset + drift * float(times[-1] - origin)))
    return _Edge(
        first=first,
        second=second,
        offset_ns=offset,
        drift=drift,
        origin_ns=origin,
        scatter_ns=scatter,
        count=len(difference),
        usable=scatter <= max(_FLOOR_NS, _SCATTER_SHARE * duration_ns),
        significant=largest > max(_FLOOR_NS, _SIGMAS * scatter),
    )


def _half_range(values: np.ndarray) -> float:
    low, high = np.percentile(values, [25, 75])
    return float(high - low) / 2
