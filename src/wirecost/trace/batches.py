"""Batches of sends and receives (`batch_isend_irecv`): one kernel moves messages that the host describes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from wirecost.trace.nesting import Nested
from wirecost.trace.operations import UNKNOWN
from wirecost.trace.recorded import Call, HostRange, Recorded

_MOST_MESSAGES = 10_000


def join_batches(recorded: Recorded) -> None:
    """Gives each kernel of a batch the messages that the host described since its thread's last communication."""
    messages = [r for r in recorded.host_ranges if r.call is not None and r.call.peers]
    calls = recorded.device.calls
    if not messages or not calls:
        return
    launch = recorded.launch
    rows = sorted((row for row in calls if launch[row] >= 0), key=lambda row: int(launch[row]))
    inside = Nested(messages)
    launching: set[int] = set()
    for row in rows:
        at = int(launch[row])
        around = inside.innermost(int(recorded.launches.thread[at]), int(recorded.launches.start_ns[at]))
        if around is not None:
            launching.add(id(around))
    waiting: dict[int, list[HostRange]] = defaultdict(list)
    for message in sorted(messages, key=lambda r: r.start_ns):
        if id(message) not in launching:
            waiting[message.thread].append(message)
    starts = {thread: np.array([r.start_ns for r in listed]) for thread, listed in waiting.items()}
    consumed: dict[int, int] = defaultdict(int)
    for row in rows:
        thread, begun = int(recorded.launches.thread[launch[row]]), int(recorded.launches.start_ns[launch[row]])
        if thread not in waiting:
            continue
        upto = int(np.searchsorted(starts[thread], begun, side="right"))
        batch = waiting[thread][consumed[thread] : upto]
        consumed[thread] = upto
        if 0 < len(batch) <= _MOST_MESSAGES and not calls[row].peers and calls[row].op in (UNKNOWN, "send_recv"):
            _describe(calls[row], [r.call for r in batch if r.call is not None])


def _describe(call: Call, parts: list[Call]) -> None:
    """Describes a call by the messages of its batch.

    Its bytes are those of the direction that moves more, as nccl-tests counts them.
    """
    directions = {part.op for part in parts}
    call.op, call.op_source = directions.pop() if len(directions) == 1 else "send_recv", "args"
    call.group, call.members, call.group_size = parts[0].group, parts[0].members, parts[0].group_size
    call.dtype = parts[0].dtype
    call.peers = tuple(peer for part in parts for peer in part.peers)
    call.bytes = None
    if all(part.bytes is not None for part in parts):
        call.bytes = max(sum(p.bytes or 0 for p in parts if p.op == op) for op in ("send", "recv"))
