"""Replays a graph: when each host call ends and each piece of device work runs, under changed durations.

Ranks are replayed one node after the other; a rank pauses where a node needs a collective that another rank has
not reached, and goes on when it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wirecost.errors import WirecostError
from wirecost.whatif.host_calls import QUEUE_COMMANDS
from wirecost.whatif.nodes import HOST, JOIN, SYNC, WHOLE_DEVICE, Step

_REMEMBERED = 8  # cycles to which waits may reach back
_PENDING = 1e18  # later than any time: the end of a collective that isn't known yet


class ReplayError(WirecostError):
    """The ranks' collectives can't be brought into one order."""


@dataclass
class Speeds:
    """Factors on the recorded durations: of the host's work, the device's computing and copies, and the network.

    `shared` makes transfers of one rank share its link: one begins when the one before has ended. `queue` is the
    number of commands that a stream's queue takes. `bucket_ns` is the token bucket of a shared link: what it
    carries in this time passes at once if the link was idle for as long.
    """

    host: float = 1.0
    device: float = 1.0
    network: float = 1.0
    shared: bool = False
    queue: int | None = None
    bucket_ns: float = 0.0


@dataclass
class RankTimes:
    """What one rank did: the time of each cycle's first device work, and (start, end) of each node of the cycles
    that are kept."""

    begins: list[float] = field(default_factory=list)
    kept: dict[int, tuple[list[float], list[float]]] = field(default_factory=dict)
    end: float = 0.0
    host_end: float = 0.0


@dataclass
class _Join:
    ranks: list[int] = field(default_factory=list)
    start: float = 0.0
    end: float = _PENDING


class _Joins:
    """The collectives that ranks have reached, and until when each rank's link is taken."""

    def __init__(
        self, speeds: Speeds, transfers: Sequence[float], members: Sequence[int], wire: Sequence[float], ranks: int
    ) -> None:
        self._factor, self._shared = speeds.network, speeds.shared
        self._bucket, self._wire = speeds.bucket_ns, wire
        self._credit = [speeds.bucket_ns] * ranks
        self._transfers, self._members = transfers, members
        self._by_key: dict[tuple[int, int], _Join] = {}
        self._link = [0.0] * ranks

    def arrive(self, key: tuple[int, int], rank: int, start: float) -> float:
        """Returns when a collective ends that a rank begins at `start`; `_PENDING` until all ranks are there."""
        join = self._by_key.get(key)
        if join is None:
            join = self._by_key[key] = _Join()
        join.ranks.append(rank)
        join.start = max(join.start, start)
        if len(join.ranks) == self._members[key[0]]:
            begun = join.start
            if self._shared:
                begun = max(begun, *(self._link[r] for r in join.ranks))
            length = self._transfers[key[0]] * self._factor
            if self._bucket and self._shared:
                length = self._shaped(length, self._wire[key[0]] * self._factor, begun, join.ranks)
            join.end = begun + length
            if self._shared:
                for r in join.ranks:
                    self._link[r] = join.end
        return join.end

    def _shaped(self, length: float, wire: float, begun: float, ranks: Sequence[int]) -> float:
        """Returns how long a transfer takes of which each rank's token bucket lets a part of the bytes through."""
        credits = [min(self._bucket, self._credit[r] + begun - self._link[r]) for r in ranks]
        left = length - min(wire, *credits)
        for r, credit in zip(ranks, credits, strict=True):
            self._credit[r] = min(self._bucket, credit + left - wire)
        return left

    def end(self, key: tuple[int, int]) -> float:
        """Returns when a collective that was reached ends."""
        return self._by_key[key].end


def replay(
    ranks: Sequence[Sequence[Step]],
    streams: Sequence[int],
    transfers: Sequence[float],
    members: Sequence[int],
    speeds: Speeds,
    *,
    wire_ns: Sequence[float] = (),
    keep: Sequence[int] = (),
    begins_ns: Sequence[float] = (),
) -> list[RankTimes]:
    """Returns the times of every rank.

    Args:
        ranks: for each rank the steps to replay, one after the other; a step may appear several times.
        streams: number of streams of each rank.
        transfers: transfer time of each join in ns.
        members: number of ranks that take part in each join.
        wire_ns: what of each join's transfer time its bytes take, where `speeds` has a token bucket.
        keep: numbers of the cycles whose nodes' times are kept.
        begins_ns: when each rank's host begins, by default all at 0.

    Raises:
        ReplayError: if ranks wait for each other in a circle.
    """
    joins = _Joins(speeds, transfers, members, wire_ns, len(ranks))
    results = [RankTimes() for _ in ranks]
    active = [
        _process(
            _Rank(number, streams[number], speeds, joins, begins_ns[number] if begins_ns else 0.0),
            steps,
            results[number],
            frozenset(keep),
        )
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


class _Rank:
    """One rank's state while its nodes are replayed in order."""

    def __init__(self, number: int, streams: int, speeds: Speeds, joins: _Joins, begin: float) -> None:
        self.number, self.speeds, self.joins = number, speeds, joins
        self.limit = speeds.queue or QUEUE_COMMANDS
        self.stream_end = [0.0] * streams
        self.history: list[list[float]] = [[] for _ in range(streams)]
        self.launched = [0] * streams
        self.pending: dict[int, tuple[int, int, tuple[int, int]]] = {}
        self.ends: list[list[float]] = []
        self.host_time = begin

    def enter(self, step: Step, cycle: int) -> None:
        """Begins a step."""
        self.step, self.cycle = step, cycle
        self.begin = [0.0] * len(step.kind)
        self.t = [0.0] * len(step.kind)
        self.ends.append(self.t)
        if cycle >= _REMEMBERED:
            self.ends[cycle - _REMEMBERED] = []
        self.before = self.host_time

    def node(self, i: int) -> bool:
        """Replays a node; False if what it needs isn't known yet."""
        kind = self.step.kind[i]
        if kind == HOST:
            return self._host(i)
        return self._sync(i) if kind == SYNC else self._work(i, kind)

    def _host(self, i: int) -> bool:
        step = self.step
        r = step.ref[i]
        factor = self.speeds.host
        start = (self.t[r] if r >= 0 else self.before) + step.gap[i] * factor
        end = start + step.length[i] * factor
        s = step.stream[i]
        if s >= 0:
            oldest = self.launched[s] - self.limit
            if oldest >= 0:
                history = self.history[s]
                room = history[oldest] if oldest < len(history) else _PENDING
                if room >= _PENDING:
                    return False
                if room > end:  # noqa: PLR1730 - faster than max()
                    end = room
            self.launched[s] += 1
        self.begin[i] = start
        self.t[i] = self.host_time = end
        return True

    def _waited(self, i: int, until: float, pause: float) -> float:
        """Returns the latest of `until` and the ends that a node waits for, each plus `pause`."""
        for back, at in self.step.waits[i]:
            if back <= self.cycle:
                ends = self.ends[self.cycle - back] if back else self.t
                # Repeated steps are replayed in a cycle. The step before this one in the cycle may be another
                # one than in the recording, and have fewer nodes than the one that this node waited for.
                if at >= len(ends):
                    continue
                e = ends[at] + pause
                if e > until:  # noqa: PLR1730 - faster than max()
                    until = e
        return until

    def _sync(self, i: int) -> bool:
        step = self.step
        r = step.ref[i]
        begin = end = self.t[r] if r >= 0 else self.before
        if i in step.waits:
            end = self._waited(i, end, 0.0)
        elif step.stream[i] == WHOLE_DEVICE:
            end = max(end, *self.stream_end)
        if end >= _PENDING:
            return False
        self.begin[i], self.t[i] = begin, end
        if end > self.host_time:  # noqa: PLR1730 - faster than max()
            self.host_time = end
        return True

    def _work(self, i: int, kind: int) -> bool:
        step = self.step
        s, r, gap = step.stream[i], step.ref[i], step.gap[i]
        start = self.stream_end[s] + gap
        ready = (self.t[r] if r >= 0 else self.before) + step.delay[i]
        if ready > start:  # noqa: PLR1730 - faster than max()
            start = ready
        if i in step.waits:
            start = self._waited(i, start, gap)
        if start >= _PENDING:
            return False
        self.begin[i] = start
        if kind == JOIN:
            key = (step.join[i], self.cycle)
            end = self.joins.arrive(key, self.number, start)
            if end >= _PENDING:
                self.pending[s] = (self.cycle, i, key)
        else:
            end = start + step.length[i] * self.speeds.device
        self.t[i] = self.stream_end[s] = end
        self.history[s].append(end)
        return True

    def resolve(self) -> bool:
        """Takes the ends of collectives that have become known; returns whether there were any."""
        resolved = False
        for s, (cycle, at, key) in list(self.pending.items()):
            end = self.joins.end(key)
            if end < _PENDING:
                if self.ends[cycle]:
                    self.ends[cycle][at] = end
                self.stream_end[s] = self.history[s][-1] = end
                del self.pending[s]
                resolved = True
        return resolved


def _process(rank: _Rank, steps: Sequence[Step], result: RankTimes, keep: frozenset[int]) -> Iterator[bool]:
    """Replays a rank; yields, where it needs other ranks, whether it has come on since."""
    progressed = False
    for cycle, step in enumerate(steps):
        rank.enter(step, cycle)
        node, count, i = rank.node, len(step.kind), 0
        while i < count:
            if node(i):
                i += 1
                progressed = True
            elif not rank.resolve():
                yield progressed
                progressed = False
        if step.first >= 0:
            result.begins.append(rank.begin[step.first])
        if cycle in keep:
            result.kept[cycle] = (rank.begin, rank.t)
    while rank.pending:
        if not rank.resolve():
            yield progressed
            progressed = False
    result.end = max(rank.stream_end, default=0.0)
    result.host_end = rank.host_time


__all__ = ["RankTimes", "ReplayError", "Speeds", "replay"]
