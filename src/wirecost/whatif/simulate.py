"""Replays a graph: when each host call ends and each piece of device work runs, under changed durations.

Ranks are replayed one node after the other; a rank pauses where a node needs a collective that another rank has not
reached, and goes on when it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wirecost.errors import WirecostError
from wirecost.whatif.graph import HOST, JOIN, NONE, SYNC, Step
from wirecost.whatif.host_calls import QUEUE_COMMANDS

_PENDING = 1e18  # later than any time: the end of a collective that isn't known yet


class ReplayError(WirecostError):
    """The ranks' collectives can't be brought into one order."""


@dataclass
class Speeds:
    """Factors on the recorded durations: of the host's work, the device's computing and copies, and the network.

    `transfer_ns` replaces the transfer of collectives (by join number); `shared` makes transfers of one rank share
    its link: one begins when the one before has ended.
    """

    host: float = 1.0
    device: float = 1.0
    network: float = 1.0
    transfer_ns: Sequence[float] | None = None
    shared: bool = False
    queue: int | None = None


@dataclass
class RankTimes:
    """What one rank did: the time of each cycle's first device work, and (start, end) of each node of the cycles that
    are kept."""

    begins: list[float] = field(default_factory=list)
    kept: dict[int, tuple[list[float], list[float]]] = field(default_factory=dict)
    end: float = 0.0
    host_end: float = 0.0


@dataclass
class _Join:
    arrived: int = 0
    start: float = 0.0
    end: float = _PENDING


class _Run:
    def __init__(self, speeds: Speeds, transfers: Sequence[float], members: Sequence[int]) -> None:
        self.speeds = speeds
        self.transfers = transfers
        self.members = members
        self.joins: dict[tuple[int, int], _Join] = {}
        self.link: list[float] = []


def replay(
    ranks: Sequence[Sequence[Step]],
    streams: Sequence[int],
    transfers: Sequence[float],
    members: Sequence[int],
    speeds: Speeds,
    *,
    keep: Sequence[int] = (),
) -> list[RankTimes]:
    """Returns the times of every rank.

    Args:
        ranks: for each rank the steps to replay, one after the other; a step may appear several times.
        streams: number of streams of each rank.
        transfers: transfer time of each join in ns.
        members: number of ranks that take part in each join.
        keep: numbers of the cycles whose nodes' times are kept.

    Raises:
        ReplayError: if ranks wait for each other in a circle.
    """
    run = _Run(speeds, speeds.transfer_ns or transfers, members)
    run.link = [0.0] * len(ranks)
    results = [RankTimes() for _ in ranks]
    active = [
        _rank(run, number, steps, streams[number], results[number], frozenset(keep))
        for number, steps in enumerate(ranks)
    ]
    running = dict(enumerate(active))
    while running:
        progressed = False
        for number, process in list(running.items()):
            state = next(process, None)
            if state is None:
                del running[number]
                progressed = True
            else:
                progressed = progressed or state
        if not progressed and running:
            raise ReplayError(
                f"the ranks' collectives wait for each other in a circle (rank number {min(running)} and others): "
                "the traces show different steps, or one of them is cut off"
            )
    return results


def _rank(  # noqa: PLR0912, PLR0915 - one loop over all nodes, for speed
    run: _Run, rank: int, steps: Sequence[Step], stream_count: int, result: RankTimes, keep: frozenset[int]
) -> Iterator[bool]:
    speeds, joins = run.speeds, run.joins
    f_host, f_device, f_net, limit = speeds.host, speeds.device, speeds.network, speeds.queue or QUEUE_COMMANDS
    stream_end = [0.0] * stream_count
    history: list[list[float]] = [[] for _ in range(stream_count)]
    launched = [0] * stream_count
    pending: dict[int, tuple[int, int, tuple[int, int]]] = {}
    ends: list[list[float]] = []
    host_time = 0.0
    progressed = False
    for cycle, step in enumerate(steps):
        kind, ref, stream, gap = step.kind, step.ref, step.stream, step.gap
        delay, length, join, waits = step.delay, step.length, step.join, step.waits
        count = len(kind)
        t = [0.0] * count
        begin = [0.0] * count
        ends.append(t)
        before_host = host_time
        first = step.first
        i = 0
        while i < count:
            k = kind[i]
            r = ref[i]
            if k == HOST:
                start = (t[r] if r >= 0 else before_host) + gap[i] * f_host
                end = start + length[i] * f_host
                s = stream[i]
                if s >= 0:
                    n = launched[s] - limit
                    if n >= 0:
                        room = history[s][n] if n < len(history[s]) else _PENDING
                        if room > end:
                            end = room
                    if end < _PENDING:
                        launched[s] += 1
                if end < _PENDING:
                    begin[i] = start
                    t[i] = host_time = end
                    progressed = True
                    i += 1
                    continue
            elif k == SYNC:
                end = t[r] if r >= 0 else before_host
                if i in waits:
                    for back, at in waits[i]:
                        if back <= cycle:
                            e = ends[cycle - back][at] if back else t[at]
                            if e > end:
                                end = e
                elif stream[i] == 2:
                    for e in stream_end:
                        if e > end:
                            end = e
                if end < _PENDING:
                    begin[i] = t[r] if r >= 0 else before_host
                    t[i] = end
                    if end > host_time:
                        host_time = end
                    progressed = True
                    i += 1
                    continue
            else:
                s = stream[i]
                start = stream_end[s] + gap[i]
                ready = (t[r] if r >= 0 else before_host) + delay[i]
                if ready > start:
                    start = ready
                if i in waits:
                    for back, at in waits[i]:
                        if back <= cycle:
                            e = (ends[cycle - back][at] if back else t[at]) + gap[i]
                            if e > start:
                                start = e
                if start < _PENDING:
                    begin[i] = start
                    if i == first:
                        result.begins.append(start)
                    if k == JOIN:
                        key = (join[i], cycle)
                        one = joins.get(key)
                        if one is None:
                            one = joins[key] = _Join()
                        one.arrived += 1
                        if start > one.start:
                            one.start = start
                        if one.arrived == run.members[join[i]]:
                            from_ns = one.start
                            if speeds.shared:
                                from_ns = max(from_ns, max(run.link))
                            one.end = from_ns + run.transfers[join[i]] * f_net
                            if speeds.shared:
                                run.link = [one.end] * len(run.link)
                        end = one.end
                        if end >= _PENDING:
                            pending[s] = (cycle, i, key)
                    else:
                        end = start + length[i] * f_device
                    t[i] = end
                    stream_end[s] = end
                    history[s].append(end)
                    progressed = True
                    i += 1
                    continue
            # What this node needs isn't known yet: take what has become known, or let other ranks go on.
            resolved = False
            for s, (at_cycle, at, key) in list(pending.items()):
                end = joins[key].end
                if end < _PENDING:
                    ends[at_cycle][at] = end
                    stream_end[s] = end
                    history[s][_last_pending(history[s])] = end
                    del pending[s]
                    resolved = True
            if not resolved:
                yield progressed
                progressed = False
        if cycle in keep:
            result.kept[cycle] = (begin, t)
        if cycle > 8:
            ends[cycle - 8] = []
    for s, (at_cycle, at, key) in list(pending.items()):
        while joins[key].end >= _PENDING:
            yield progressed
            progressed = False
        ends[at_cycle][at] = joins[key].end
        stream_end[s] = joins[key].end
    result.end = max(stream_end, default=0.0)
    result.host_end = host_time


def _last_pending(times: list[float]) -> int:
    return len(times) - 1


__all__ = ["NONE", "RankTimes", "ReplayError", "Speeds", "replay"]
