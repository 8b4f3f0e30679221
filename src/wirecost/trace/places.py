"""Where in the time line a cause or a loss can be seen best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from wirecost.trace.loads import steady_iterations

if TYPE_CHECKING:
    from wirecost.trace.rank import RankTrace
    from wirecost.trace.result import TraceSet


class Place(msgspec.Struct):
    """A stretch [start_ns, end_ns) of one rank's time line (on the clock of its trace), and what it shows."""

    rank: int | None
    start_ns: int
    end_ns: int
    label: str


def costliest_wait(s: TraceSet, late: Sequence[int] = (), *, bubble: bool = False) -> Place | None:
    """The collective in which a rank waits longest while nothing computes; only for one of `late`, if given.
    `bubble` takes the waits of pipeline stages for their neighbours instead."""
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


def most_exposed(s: TraceSet) -> Place | None:
    """The communication call with the longest exposed part."""
    best: tuple[int, RankTrace, int] | None = None
    for trace in s.traces:
        exposed = trace.calls.exposed_ns
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


def idle_place(s: TraceSet, rank: int | None) -> Place | None:
    """The longest idle stretch that the time line shows, of one rank or of all; in an iteration if there are any.

    None without time lines (see `read(timeline=True)`)."""
    best: Place | None = None
    for trace, kept in zip(s.traces, steady_iterations(s.traces), strict=True):
        line = trace.timeline
        if line is None or (rank is not None and trace.rank != rank) or len(line.edges_ns) < 2:
            continue
        start, end = line.edges_ns[:-1], line.edges_ns[1:]
        idle = end - start - line.compute_ns - line.overlapped_ns - line.exposed_ns - line.memory_ns
        inside = np.full(len(idle), not trace.iterations)
        for n in kept:
            window = trace.iterations[n].window
            inside |= (start >= window.start_ns) & (end <= window.end_ns)
        idle = np.where(inside, idle, 0)
        if not len(idle):
            continue
        row = int(np.argmax(idle))
        if idle[row] > 0 and (best is None or int(idle[row]) > best.end_ns - best.start_ns):
            who = "?" if trace.rank is None else str(trace.rank)
            best = Place(trace.rank, int(start[row]), int(end[row]), f"the longest idle stretch, on rank {who}")
    return best
