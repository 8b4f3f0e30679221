"""Where in the time line a cause or a loss can be seen best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from wirecost.trace.compare_ranks import steady_iterations

if TYPE_CHECKING:
    from wirecost.trace.matched_traces import MatchedTraces
    from wirecost.trace.rank import RankTrace
    from wirecost.trace.recorded import Int64


class Place(msgspec.Struct):
    """A stretch [start_ns, end_ns) of one rank's time line, on the clock of its trace, and what it shows."""

    rank: int | None
    start_ns: int
    end_ns: int
    label: str


def costliest_wait(s: MatchedTraces, late: Sequence[int] = (), *, bubble: bool = False) -> Place | None:
    """Returns the collective in which a rank waits longest while nothing computes; only for one of `late`, if
    given. `bubble` takes the waits of pipeline stages for their neighbours instead."""
    by_rank = {t.rank or 0: t.calls for t in s.traces}
    best: tuple[float, Place] | None = None
    for m in s.matched:
        if m.first or m.bubble != bubble:
            continue
        for n, rank in enumerate(m.ranks):
            calls, culprit, wait = by_rank[rank], int(m.waits_for[n]), int(m.wait_ns[n])
            start, end = int(calls.start_ns[m.calls[n]]), int(calls.end_ns[m.calls[n]])
            if end <= start or wait <= 0 or (late and culprit not in late):
                continue
            cost = wait / (end - start) * int(calls.exposed_ns[m.calls[n]])
            if best is None or cost > best[0]:
                label = f"{m.op} {m.index + 1} on rank {rank}, which waits for rank {culprit}"
                best = (cost, Place(rank, start, end, label))
    return best[1] if best is not None else None


def exposed_ns(trace: RankTrace, waits: Int64, *, matched: bool) -> Int64:
    """Returns the exposed time of each call that goes to moving data (`matched`), or that isn't matched over the
    ranks."""
    calls = trace.calls
    length = np.maximum(calls.end_ns - calls.start_ns, 1)
    moving = calls.exposed_ns * (1 - np.clip(waits / length, 0, 1))
    return (
        np.where(waits >= 0, moving, 0).astype(np.int64) if matched else np.where(waits < 0, calls.exposed_ns, 0)
    )


def most_exposed(s: MatchedTraces, *, matched: bool) -> Place | None:
    """Returns the communication call with the longest exposed part of this kind (see `exposed_ns`)."""
    best: tuple[int, RankTrace, int] | None = None
    for trace, waits in zip(s.traces, s.waits, strict=True):
        exposed = exposed_ns(trace, waits, matched=matched)
        if len(exposed):
            row = int(np.argmax(exposed))
            if best is None or int(exposed[row]) > best[0]:
                best = (int(exposed[row]), trace, row)
    if best is None or best[0] <= 0:
        return None
    _, trace, row = best
    calls = trace.calls
    return Place(
        trace.rank, int(calls.start_ns[row]), int(calls.end_ns[row]),
        f"{calls.ops[calls.op[row]]} on rank {'?' if trace.rank is None else trace.rank}",
    )  # fmt: skip


def longest(s: MatchedTraces, category: str) -> Place | None:
    """Returns the longest stretch of a category (`idle`, `memory`) of a time line, in an iteration if there are
    any.

    None without time lines (see `read(timeline=True)`).
    """
    best: Place | None = None
    for trace, steady in zip(s.traces, steady_iterations(s.traces), strict=True):
        line = trace.timeline
        if line is None or len(line.edges_ns) < 2:
            continue
        start, end = line.edges_ns[:-1], line.edges_ns[1:]
        time = end - start - line.sums_ns.sum(axis=1) if category == "idle" else line.memory_ns
        inside = np.full(len(time), not trace.iterations)
        for n in steady:
            window = trace.iterations[n].window
            inside |= (start >= window.start_ns) & (end <= window.end_ns)
        row = int(np.argmax(np.where(inside, time, 0)))
        if (
            inside[row]
            and time[row] > 0
            and (best is None or int(end[row] - start[row]) > best.end_ns - best.start_ns)
        ):
            what = "idle stretch" if category == "idle" else "copy that nothing hides"
            who = "?" if trace.rank is None else str(trace.rank)
            best = Place(trace.rank, int(start[row]), int(end[row]), f"the longest {what}, on rank {who}")
    return best
