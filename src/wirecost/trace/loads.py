"""The mean time of each part of an iteration for each rank. It is the evidence behind the answer."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from wirecost.trace.compare_ranks import steady_iterations
from wirecost.trace.matched_traces import MatchedTraces

if TYPE_CHECKING:
    from wirecost.breakdown import Parts
    from wirecost.trace.comm_parts import CommParts
    from wirecost.trace.rank import RankTrace
    from wirecost.trace.recorded import Int64


class RankLoad(msgspec.Struct):
    """Means per steady iteration of one rank, or of the recorded window if it has no iterations, in ns.

    The eight parts from `compute_only_ns` on sum to `window_ns`. Four of them sum to the exposed communication:
    `transfer_ns` is moving data, `wait_ns` is waiting for a late rank, `bubble_ns` is a pipeline stage's wait for
    its neighbour, and `unsplit_ns` is not matched over the ranks, so it may be either. `steady_wait_ns` is
    `wait_ns` over the iterations without the first collective after the profiler started, because that
    collective's wait is an effect of the profiler.
    """

    rank: int | None
    iterations: int
    window_ns: float
    compute_only_ns: float
    overlapped_ns: float
    transfer_ns: float
    wait_ns: float
    bubble_ns: float
    unsplit_ns: float
    memory_ns: float
    idle_ns: float
    steady_wait_ns: float

    @property
    def compute_ns(self) -> float:
        return self.compute_only_ns + self.overlapped_ns

    @property
    def exposed_ns(self) -> float:
        return self.transfer_ns + self.wait_ns + self.bubble_ns + self.unsplit_ns

    @property
    def comm_ns(self) -> float:
        return self.overlapped_ns + self.exposed_ns


def loads(s: MatchedTraces) -> list[RankLoad]:
    """Returns one `RankLoad` for each rank that has device events, in order of rank."""
    comm: dict[int | None, list[CommParts]] = defaultdict(list)
    for row in s.comm_parts:
        comm[row.rank].append(row)
    listed = []
    for trace, waits, steady in zip(s.traces, s.waits, steady_iterations(s.traces), strict=True):
        if trace.parts is None:
            continue
        rows = steady if trace.iterations else [0]
        parts = [trace.iterations[n].parts for n in steady] if trace.iterations else [trace.parts]
        if parts:
            listed.append(_load(trace, parts, [comm[trace.rank][n] for n in rows], waits))
    return listed


def exposed_share(listed: Sequence[RankLoad]) -> float | None:
    """Returns exposed communication as a share of the ranks' mean iterations together; None without any window."""
    window_ns = sum(load.window_ns for load in listed)
    return sum(load.exposed_ns for load in listed) / window_ns if window_ns else None


def _load(trace: RankTrace, parts: Sequence[Parts], comm: Sequence[CommParts], waits: Int64) -> RankLoad:
    return RankLoad(
        rank=trace.rank,
        iterations=len(parts) if trace.iterations else 0,
        window_ns=statistics.fmean(p.window_ns for p in parts),
        compute_only_ns=statistics.fmean(p.compute_only_ns for p in parts),
        overlapped_ns=statistics.fmean(p.overlapped_ns for p in parts),
        transfer_ns=statistics.fmean(c.transfer_ns for c in comm),
        wait_ns=statistics.fmean(c.wait_ns for c in comm),
        bubble_ns=statistics.fmean(c.bubble_ns for c in comm),
        unsplit_ns=statistics.fmean(c.unknown_ns for c in comm),
        memory_ns=statistics.fmean(p.exposed_memory_ns for p in parts),
        idle_ns=statistics.fmean(p.idle_ns for p in parts),
        steady_wait_ns=_steady(trace, comm, waits),
    )


def _steady(trace: RankTrace, comm: Sequence[CommParts], waits: Int64) -> float:
    """Returns the wait per iteration without the one that the rank's first call is in, if there are others."""
    calls = trace.calls
    every = statistics.fmean(c.wait_ns for c in comm)
    if not len(calls):
        return every
    first = int(calls.iteration[0])
    name = trace.iterations[first].window.name if first >= 0 else None
    rest = [c.wait_ns for c in comm if c.iteration != name]
    if rest and trace.iterations:
        return statistics.fmean(rest)
    length = max(int(calls.end_ns[0] - calls.start_ns[0]), 1)
    return max(0.0, every - max(int(waits[0]), 0) * int(calls.exposed_ns[0]) / length / len(comm))
