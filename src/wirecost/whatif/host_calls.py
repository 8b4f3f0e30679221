"""What the host did between launches: which calls follow which, and what of their time was waiting.

A launch that returns late because the stream's queue is full is waiting, not work. Its excess over the usual
duration of that call is cut, and the replay makes it wait again where the queue is full then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from wirecost.trace.recorded import Int64, Launches, Recorded

QUEUE_COMMANDS = 1024
"""Commands that a CUDA stream holds before a launch waits. Traces of H100 and H200 show at most 1,023 kernels
between launch and end."""

SYNCHRONISE = re.compile(r"synchronize", re.IGNORECASE)
_DEVICE_SYNCHRONISE = re.compile(r"(device|ctx|context)synchronize", re.IGNORECASE)
_MEMCPY = re.compile(r"memcpy", re.IGNORECASE)
_NEARLY_FULL = 0.6  # share of the queue's kernels from which on a late return counts as waiting
_LATE_NS = 20_000  # and this much longer than usual
_HANDED_OVER_NS = 100_000  # a thread that pauses for longer may have waited for another one
_BLOCKING_NS = 20_000  # a copy's call that lasts this long and ends with the copy has waited for it


@dataclass
class HostCalls:
    """The calls that launch device work or wait for it, in order of `order_ns`; int64 columns.

    `before` is the position of the call that this one follows (-1 for the first), `gap_ns` the host's work from
    that call's end to this one's start, `work_ns` the work inside the call. `syncs`: 0 launches, 1 waits for the
    newest work of a stream, 2 waits for the whole device, 3 waits for the copy that it launched. `row` is the
    row of `launches`, `waited_ns` what was cut.
    """

    row: Int64
    thread: Int64
    start_ns: Int64
    end_ns: Int64
    before: Int64
    gap_ns: Int64
    work_ns: Int64
    syncs: Int64
    waited_ns: int


def outstanding(recorded: Recorded) -> Int64:
    """Returns for each call of the host how many events of its busiest stream were launched and not finished when
    it began."""
    launches, device = recorded.launches, recorded.device
    found = np.zeros(len(launches), dtype=np.int64)
    row = recorded.launch
    for stream in np.unique(device.stream):
        mine = np.flatnonzero((device.stream == stream) & (row >= 0))
        if len(mine) == 0:
            continue
        begun = np.sort(launches.start_ns[row[mine]])
        ended = np.sort(device.end_ns[mine])
        depth = np.searchsorted(begun, launches.start_ns) - np.searchsorted(ended, launches.start_ns)
        np.maximum(found, depth, out=found)
    return found


def waiting_ns(recorded: Recorded) -> Int64:
    """Returns for each call of the host the part of its time that it waited for room in a stream's queue."""
    launches = recorded.launches
    duration = launches.end_ns - launches.start_ns
    depth = outstanding(recorded)
    full = depth >= _NEARLY_FULL * QUEUE_COMMANDS
    waited = np.zeros(len(launches), dtype=np.int64)
    for name in np.unique(launches.name):
        if SYNCHRONISE.search(launches.names[int(name)]):
            continue
        mine = launches.name == name
        free = duration[mine & ~full]
        usual = int(np.median(free if len(free) >= 10 else duration[mine]))
        late = mine & full & (duration > usual + _LATE_NS)
        waited[late] = duration[late] - usual
    return waited


def host_calls(recorded: Recorded) -> HostCalls:
    """Returns the calls that matter for a replay and how they follow each other."""
    launches, device = recorded.launches, recorded.device
    launched = np.zeros(len(launches), dtype=bool)
    launched[recorded.launch[recorded.launch >= 0]] = True
    synchronise = np.array([bool(SYNCHRONISE.search(n)) for n in launches.names], dtype=bool)
    whole = np.array([bool(_DEVICE_SYNCHRONISE.search(n)) for n in launches.names], dtype=bool)
    memcpy = np.array([bool(_MEMCPY.search(n)) for n in launches.names], dtype=bool)
    syncs = np.zeros(len(launches), dtype=np.int64)
    if len(launches):
        syncs[synchronise[launches.name]] = 1
        syncs[whole[launches.name]] = 2
    rows = np.flatnonzero(recorded.launch >= 0)
    calls = recorded.launch[rows]
    copied = memcpy[launches.name[calls]] & (device.end_ns[rows] <= launches.end_ns[calls] + 1000)
    copied &= launches.end_ns[calls] - launches.start_ns[calls] > _BLOCKING_NS
    syncs[calls[copied]] = 3
    kept = np.flatnonzero(launched | (syncs > 0))
    kept = kept[np.argsort(launches.start_ns[kept], kind="stable")]
    # A call inside another one of its thread (a driver's inside the runtime's) is part of it.
    kept = kept[~_nested(launches, kept)]
    waited = waiting_ns(recorded)
    start, end, thread = launches.start_ns[kept], launches.end_ns[kept], launches.thread[kept]
    before = _predecessors(start, end, thread)
    gap = np.zeros(len(kept), dtype=np.int64)
    follows = before >= 0
    gap[follows] = start[follows] - end[before[follows]]
    gap -= _waited_between(launches, waited, thread, start, gap)
    work = end - start - waited[kept]
    work = np.where(syncs[kept] > 0, np.minimum(work, 10_000), work)
    return HostCalls(
        row=kept,
        thread=thread,
        start_ns=start,
        end_ns=end,
        before=before,
        gap_ns=np.maximum(gap, 0),
        work_ns=np.maximum(work, 0),
        syncs=syncs[kept],
        waited_ns=int(waited.sum()),
    )


def _nested(launches: Launches, kept: Int64) -> np.ndarray:
    inside = np.zeros(len(kept), dtype=bool)
    for thread in np.unique(launches.thread[kept]):
        mine = np.flatnonzero(launches.thread[kept] == thread)
        reached = np.maximum.accumulate(launches.end_ns[kept[mine]])
        inside[mine[1:]] = launches.end_ns[kept[mine[1:]]] <= reached[:-1]
    return inside


def _predecessors(start: Int64, end: Int64, thread: Int64) -> Int64:
    """Returns the call that each one follows: the one before on its thread; where that thread paused and another
    one worked meanwhile, the last call of that other thread."""
    own = np.full(len(start), -1, dtype=np.int64)
    for number in np.unique(thread):
        mine = np.flatnonzero(thread == number)
        own[mine[1:]] = mine[:-1]
    latest = np.arange(-1, len(start) - 1)
    own_end = np.where(own >= 0, end[np.maximum(own, 0)], np.iinfo(np.int64).min)
    handed = (start - np.where(own >= 0, own_end, start - 2 * _HANDED_OVER_NS) > _HANDED_OVER_NS) & (latest >= 0)
    handed &= (end[np.maximum(latest, 0)] > own_end) & (end[np.maximum(latest, 0)] <= start)
    return np.where(handed, latest, own)


def _waited_between(launches: Launches, waited: Int64, thread: Int64, start: Int64, gap: Int64) -> Int64:
    """Returns what calls that launch nothing waited inside each gap."""
    found = np.zeros(len(start), dtype=np.int64)
    for number in np.unique(thread):
        late = np.flatnonzero((launches.thread == number) & (waited > 0))
        if len(late) == 0:
            continue
        total = np.concatenate([[0], np.cumsum(waited[late])])
        mine = thread == number
        last = total[np.searchsorted(launches.start_ns[late], start[mine])]
        first = total[np.searchsorted(launches.start_ns[late], start[mine] - gap[mine])]
        found[mine] = last - first
    return found
