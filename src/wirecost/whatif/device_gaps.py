"""Pauses before device work that the device itself causes, and delays from a launch to the start of its work."""

from __future__ import annotations

import numpy as np

from wirecost.trace.recorded import Int64, Recorded
from wirecost.whatif.host_calls import HostCalls
from wirecost.whatif.launched import Launched
from wirecost.whatif.nodes import NONE
from wirecost.whatif.stream_waits import StreamWaits

_MOST_GAP_NS = 10_000
"""Longest pause between two pieces of work of one stream that the device itself may cause. A longer one is a wait
that the graph must explain."""
_MOST_DELAY_NS = 60_000
"""Longest time from a launch to the start of its work on an idle stream."""


def launch_positions(recorded: Recorded, work: Launched, host: HostCalls) -> Int64:
    position = np.full(len(recorded.launches) + 1, NONE, dtype=np.int64)
    position[host.row] = np.arange(len(host.row))
    return position[recorded.launch[work.row]]


def device_gaps(
    recorded: Recorded, work: Launched, waits: StreamWaits, host: HostCalls
) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the pause after the work before, the delay after the launch's end, and what stays unexplained
    (ns)."""
    count = len(work.row)
    at = launch_positions(recorded, work, host)
    launch_end = np.where(at >= 0, host.end_ns[np.maximum(at, 0)], work.launch_ns)
    before = np.full(count, np.iinfo(np.int64).min // 2, dtype=np.int64)
    for stream in np.unique(work.stream):
        mine = np.flatnonzero(work.stream == stream)
        before[mine[1:]] = np.maximum.accumulate(work.end_ns[mine])[:-1]
    others = np.full(count, np.iinfo(np.int64).min // 2, dtype=np.int64)
    if len(waits.waiter):
        np.maximum.at(others, waits.waiter, work.end_ns[waits.source])
    idle = work.start_ns - np.maximum(before, others)
    after_launch = work.start_ns - launch_end
    by_launch = (idle > _MOST_GAP_NS) & (after_launch <= _MOST_DELAY_NS)
    usual_delay = float(np.median(after_launch[by_launch])) if by_launch.any() else 3000.0
    close = (idle >= 0) & (idle <= _MOST_GAP_NS)
    usual_gap = float(np.median(idle[close])) if close.any() else 1000.0
    delay = np.where(by_launch, after_launch, np.minimum(after_launch, usual_delay)).astype(float)
    gap = np.where(close, idle, np.where(idle < 0, 0, usual_gap)).astype(float)
    explained = np.maximum(np.maximum(before, others) + gap, launch_end + delay)
    missing = np.maximum(work.start_ns - explained, 0)
    missing[work.step == 0] = 0
    return gap, delay, int(missing[missing > _MOST_GAP_NS].sum())


def all_pauses(work: Launched, waits: StreamWaits) -> np.ndarray:
    """Returns the pause before each piece of work after all that it waits for, where all waits are known."""
    ready = np.full(len(work.row), np.iinfo(np.int64).min // 2, dtype=np.int64)
    for stream in np.unique(work.stream):
        mine = work.on(int(stream))
        ready[mine[1:]] = np.maximum.accumulate(work.end_ns[mine])[:-1]
    if len(waits.waiter):
        np.maximum.at(ready, waits.waiter, work.end_ns[waits.source])
    pause = work.start_ns - ready
    # The first of the recording waits for nothing.
    return np.where(ready < 0, 0, np.maximum(pause, 0)).astype(float)
