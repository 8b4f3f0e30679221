"""The surroundings of each communication call on its rank: launches, streams and overlapping compute."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from wirecost.breakdown.intervals import Intervals, measure_before
from wirecost.trace.categories import KERNEL
from wirecost.trace.recorded import NONE, Columns, Int64, Recorded

_OPTIMIZER = re.compile(r"^Optimizer\.step#|optimizer|^## ?optim", re.IGNORECASE)


class Situation(msgspec.Struct):
    """What surrounds the calls of a rank: int64 columns by call, -1 is unknown."""

    start_ns: Int64
    end_ns: Int64
    exposed_ns: Int64
    exposed_from_ns: Int64  # the first exposed instant of its own
    longest_ns: Int64  # its longest exposed stretch
    launch_ns: Int64  # when the host began to launch it
    launched_ns: Int64  # and when that call returned
    ready_ns: Int64  # when the newest operation that its thread launched before it had ended
    queue_ns: Int64  # when the one before it on its stream had ended
    beside_ns: Int64  # compute during the call
    since_ready_ns: Int64  # compute since it was ready, up to its start
    next_start_ns: Int64  # the first compute kernel after the first exposed instant: its start,
    next_launch_ns: Int64  # its launch,
    next_queue_ns: Int64  # and when the one before it on its stream had ended
    before_optimizer_ns: Int64  # compute between its end and the first launch of the next optimizer step
    mixed: np.ndarray  # whether compute kernels run on its stream
    graph: np.ndarray  # whether a graph launched it together with others


def find_situation(
    columns: Columns,
    recorded: Recorded,
    rows: Int64,
    compute: Intervals,
    exposed: Intervals,
    own: tuple[Int64, Int64],
) -> Situation:
    """Returns the situation of the communication in `rows`, whose own exposed time starts at `own[0]` and is
    `own[1]`."""
    start, end = columns.start_ns[rows], columns.end_ns[rows]
    launches = recorded.launches
    launch_rows = recorded.launch if columns is recorded.device else launches.of(columns.correlation)
    launched = launch_rows >= 0
    begun, returned, thread = (
        np.append(column, NONE)[launch_rows] for column in (launches.start_ns, launches.end_ns, launches.thread)
    )
    work = ~columns.comm
    kernels = np.flatnonzero(work & (columns.kind == KERNEL))
    kernels = kernels[np.argsort(columns.start_ns[kernels], kind="stable")]
    ready = _newest(columns, begun, thread, np.flatnonzero(work & launched), rows)
    exposed_from = _first_exposed(exposed, own[0], end)
    streams = np.unique(columns.stream[kernels])
    # A product may begin with a fill of its workspace, on its own stream.
    on_compute = np.flatnonzero(work & np.isin(columns.stream, streams))
    on_compute = on_compute[np.argsort(columns.start_ns[on_compute], kind="stable")]
    following = np.searchsorted(columns.start_ns[on_compute], exposed_from, side="left")
    there = following < len(on_compute)
    after = np.append(on_compute, 0)[np.minimum(following, max(len(on_compute) - 1, 0))]
    queue = _before_on_stream(columns)
    measured = [measure_before(compute, t) for t in (start, end, np.where(ready >= 0, ready, start))]
    counts = np.bincount(launch_rows[launched], minlength=1) if launched.any() else np.zeros(1, dtype=np.int64)
    return Situation(
        start_ns=start,
        end_ns=end,
        exposed_ns=own[1],
        exposed_from_ns=exposed_from,
        longest_ns=_longest_exposed(exposed, own[0], end),
        launch_ns=begun[rows],
        launched_ns=returned[rows],
        ready_ns=ready,
        queue_ns=queue[rows],
        beside_ns=measured[1] - measured[0],
        since_ready_ns=np.maximum(measured[0] - measured[2], 0),
        next_start_ns=np.where(there, columns.start_ns[after], NONE),
        next_launch_ns=np.where(there, begun[after], NONE),
        next_queue_ns=np.where(there, queue[after], NONE),
        before_optimizer_ns=_before_optimizer(
            columns, recorded, begun, kernels, compute, (begun[rows], start, end)
        ),
        mixed=np.isin(columns.stream[rows], streams),
        graph=launched[rows] & (counts[np.maximum(launch_rows[rows], 0)] > 1),
    )


def _before_optimizer(
    columns: Columns,
    recorded: Recorded,
    begun: Int64,
    kernels: Int64,
    compute: Intervals,
    calls: tuple[Int64, Int64, Int64],
) -> Int64:
    """Returns the compute between the end of each call and the next optimizer step's first kernel; -1 if none
    follows.

    Calls are given as (launches, starts, ends). On a host's own time line, which has no launches, starts are used.
    """
    launch, start, end = calls
    steps = [a.start_ns for a in recorded.cpu_annotations if _OPTIMIZER.search(a.name)]
    optimizers = np.sort(np.array(steps, dtype=np.int64))
    time_ns = np.where(launch >= 0, launch, start)
    at = np.searchsorted(optimizers, time_ns, side="left")
    there = at < len(optimizers)
    if not there.any():
        return np.full(len(time_ns), NONE, dtype=np.int64)
    known = kernels[begun[kernels] >= 0]
    times, first = (begun[known], columns.start_ns[known]) if len(known) else (columns.start_ns[kernels],) * 2
    order = np.argsort(times, kind="stable")
    opened = np.append(optimizers, 0)[np.minimum(at, len(optimizers) - 1)]
    follows = np.searchsorted(times[order], opened, side="left")
    there &= follows < len(order)
    begins = first[order[np.minimum(follows, len(order) - 1)]] if len(order) else end
    between = measure_before(compute, np.maximum(begins, end)) - measure_before(compute, end)
    return np.where(there, between, NONE)


def _newest(columns: Columns, begun: Int64, thread: Int64, work: Int64, rows: Int64) -> Int64:
    """Returns the end of the newest operation that was launched before each row by the same thread.

    Without one, an operation of any thread counts, else the row's own launch. -1 means that launches aren't known.
    """
    newest_end = np.full(len(rows), NONE, dtype=np.int64)
    order = work[np.argsort(begun[work], kind="stable")]
    for own_thread in (True, False):
        for t in np.unique(thread[rows]) if own_thread else [None]:
            mine = order if t is None else order[thread[order] == t]
            which = np.flatnonzero(
                (begun[rows] >= 0) & (newest_end == NONE) & (True if t is None else thread[rows] == t)
            )
            if len(mine) == 0 or len(which) == 0:
                continue
            at = np.searchsorted(begun[mine], begun[rows[which]], side="left") - 1
            known = at >= 0
            newest_end[which[known]] = columns.end_ns[mine[at[known]]]
    # Work without an earlier launch isn't delayed.
    return np.where(newest_end == NONE, begun[rows], newest_end)


def _before_on_stream(columns: Columns) -> Int64:
    """Returns when everything that started earlier on the stream of each row had ended; -1 for the first."""
    order = np.lexsort((columns.end_ns, columns.start_ns, columns.stream))
    earlier_end = np.full(len(order), NONE, dtype=np.int64)
    if len(order) == 0:
        return earlier_end
    stream, end = columns.stream[order], columns.end_ns[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = stream[1:] != stream[:-1]
    # A running maximum of ends that starts anew with each stream: ends are lifted by a stream's number.
    low = int(end.min())
    height = int(end.max()) - low + 1
    lifted = np.maximum.accumulate(np.cumsum(first) * height + (end - low))
    earlier_end[order[1:]] = np.where(first[1:], NONE, lifted[:-1] - np.cumsum(first)[:-1] * height + low)
    return earlier_end


def _first_exposed(exposed: Intervals, own_start: Int64, end: Int64) -> Int64:
    """Returns the first exposed instant from `own_start` on, at most `end`."""
    if len(exposed) == 0:
        return end
    at = np.searchsorted(exposed[:, 1], own_start, side="right")
    begin = np.where(at < len(exposed), exposed[np.minimum(at, len(exposed) - 1), 0], end)
    return np.minimum(np.maximum(begin, own_start), end)


def _longest_exposed(exposed: Intervals, own_start: Int64, end: Int64) -> Int64:
    """Returns the longest exposed stretch in [own_start, end) of each call."""
    longest = np.zeros(len(end), dtype=np.int64)
    lo = np.searchsorted(exposed[:, 1], own_start, side="right")
    hi = np.searchsorted(exposed[:, 0], end, side="left")
    alone = np.flatnonzero(hi == lo + 1)
    within = exposed[lo[alone]]
    longest[alone] = np.minimum(within[:, 1], end[alone]) - np.maximum(within[:, 0], own_start[alone])
    for call in np.flatnonzero(hi > lo + 1):
        inside = np.clip(exposed[lo[call] : hi[call]], own_start[call], end[call])
        longest[call] = (inside[:, 1] - inside[:, 0]).max()
    return longest
