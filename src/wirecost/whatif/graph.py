"""The dependency graph of a job: for each rank and step the host's calls and the device's work, with what each
waits for.

Nodes of a step are columns in an order that respects every dependency: host calls at their end, device work at its
start (and after its launch). A node's kind says what starts it:

- `HOST`: `gap` after the call before it on the host; it waits while the stream that it launches on is full.
- `WORK`: after the work before it on its stream (plus `gap`), and after its launch (plus `delay`).
- `JOIN`: as WORK, and it ends with the same collective on all other ranks.
- `SYNC`: the host goes on when the device work has ended that it waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wirecost.trace.clocks import ClockOffset, Clocks, estimate_clocks
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.exchanges import match_messages
from wirecost.trace.match import match_groups
from wirecost.trace.recorded import Int64, Recorded
from wirecost.whatif.cpu_recording import positions
from wirecost.whatif.host_calls import QUEUE_COMMANDS, HostCalls, host_calls, outstanding
from wirecost.whatif.reading import RankRecord
from wirecost.whatif.stream_waits import Launched, StreamWaits, launched, stream_waits

HOST, WORK, JOIN, SYNC = 0, 1, 2, 3
NONE = -1
WHOLE_DEVICE = 2
"""`stream` of a SYNC node that waits for all streams."""

_MOST_GAP_NS = 10_000
"""Longest pause between two pieces of work of one stream that the device itself may cause. A longer one is a wait
that the graph must explain."""
_MOST_DELAY_NS = 60_000
"""Longest time from a launch to the start of its work on an idle stream."""


@dataclass
class Collective:
    """One communication over the ranks that show it.

    `transfer_ns` is from the last rank's start to the end; `known` says that all ranks of the group are there, so
    that waiting and transfer are told apart.
    """

    op: str
    group: str
    size: int
    bytes: int | None
    members: int
    transfer_ns: int
    known: bool
    position: tuple[int, int] = (0, 0)
    spans: str = ""
    waited_ns: int = 0  # where `known` is False: what of `transfer_ns` may be waiting for other ranks


@dataclass
class Step:
    """One step of one rank; lists of equal length in the order in which nodes are replayed.

    `ref` is for HOST the position of the call before it in this step, for WORK and JOIN that of the launch (NONE:
    the last host call of the step before). `waits` holds for a node the (steps back, position) of the device work
    that it waits for.
    """

    kind: list[int]
    ref: list[int]
    stream: list[int]
    gap: list[float]
    delay: list[float]
    length: list[float]
    join: list[int]
    row: list[int]
    waits: dict[int, list[tuple[int, int]]]
    first: int  # the node at which the step begins on the device
    last_host: int


@dataclass
class RankGraph:
    """One rank's steps, and what was inferred of it."""

    rank: int
    steps: list[Step]
    streams: int
    waits: StreamWaits
    unlaunched: int
    unexplained_ns: int
    record: RankRecord
    host: HostCalls
    work: Launched
    main: int
    queue: int  # commands that a stream's queue takes


@dataclass
class Graph:
    """All ranks' steps and the collectives that join them. `recorded_ns` is the recorded length of each step but
    the first, the mean over ranks; `collectives[i]` is the collective of join number i."""

    ranks: list[RankGraph]
    collectives: list[Collective]
    clocks: list[ClockOffset]
    recorded_ns: list[float]
    unmatched: int
    step_count: int
    begins_ns: list[float] = field(default_factory=list)  # when each rank's host begins, from the first one
    diagnostics: DiagnosticCounts = field(default_factory=DiagnosticCounts)


def build(records: Sequence[RankRecord]) -> Graph:
    """Returns the graph of a job from its ranks' traces."""
    traces = [record.trace for record in records]
    diagnostics = DiagnosticCounts()
    groups = match_groups(traces, diagnostics) if len(traces) > 1 else []
    clocks = estimate_clocks(traces, groups)
    boundaries = [step_boundaries(record) for record in records]
    count = min(len(b) for b in boundaries)
    joins: dict[tuple[int, int], int] = {}
    collectives: list[Collective] = []
    for number, group in enumerate(groups):
        _join_group(records, clocks, number, group, joins, collectives)
    for exchange in match_messages(traces, clocks, diagnostics) if len(traces) > 1 else []:
        _join_exchange(records, clocks, exchange.calls, joins, collectives)
    unmatched = sum(len(t.calls) for t in traces) - len(joins)
    _join_alone(records, joins, collectives)
    launches = [launched(r.recorded, b) for r, b in zip(records, boundaries, strict=True)]
    waits = _all_waits(records, launches)
    ranks = []
    for number, record in enumerate(records):
        calls = {int(record.call_rows[row]): join for (rank, row), join in joins.items() if rank == number}
        ranks.append(_rank(record, number, launches[number], waits[number], calls, boundaries[number]))
    begins = [
        int(clocks.corrected(n, b[:1] + r.trace.base_ns)[0])
        for n, (r, b) in enumerate(zip(records, boundaries, strict=True))
    ]
    comparable = len(set(clocks.comparable)) == 1
    begins_ns = [float(b - min(begins)) if comparable else 0.0 for b in begins]
    return Graph(ranks, collectives, clocks.offsets, _recorded(ranks), unmatched, count, begins_ns, diagnostics)


def _all_waits(records: Sequence[RankRecord], launches: Sequence[Launched]) -> list[StreamWaits]:
    """Returns the waits between streams of each rank: those that are known, else inferred ones."""
    if all(record.waits is not None for record in records):
        tables = [positions(work.row, r.waits or []) for r, work in zip(records, launches, strict=True)]
        return [StreamWaits(table[:, 0], table[:, 1], len(table)) for table in tables]
    return stream_waits([(r.recorded, w) for r, w in zip(records, launches, strict=True)])


def step_boundaries(record: RankRecord) -> Int64:
    """Returns when the host began to launch each iteration of a rank, in ns of the file's clock."""
    recorded, trace = record.recorded, record.trace
    rows = np.flatnonzero(recorded.launch >= 0)
    start = recorded.device.start_ns[rows]
    begun = recorded.launch_ns[rows]
    found = []
    for iteration in trace.iterations:
        at = iteration.window.start_ns - trace.base_ns
        inside = rows[start == at]
        begins = recorded.launch_ns[inside] if len(inside) else begun[start >= at][:1]
        if len(begins):
            found.append(int(begins.min()))
    if not found:
        found = [int(begun.min())]
    return np.array(sorted(set(found)), dtype=np.int64)


def _join_group(records, clocks: Clocks, number, group, joins, collectives) -> None:
    traces = [r.trace for r in records]
    ranks = list(group.rows)
    starts = np.stack([clocks.corrected(n, traces[n].calls.start_ns[group.rows[n]]) for n in ranks])
    ends = np.stack([clocks.corrected(n, traces[n].calls.end_ns[group.rows[n]]) for n in ranks])
    comparable = len({clocks.comparable[n] for n in ranks}) == 1
    transfer = ends.max(axis=0) - starts.max(axis=0)
    shortest = (ends - starts).min(axis=0)
    transfer = np.where(transfer > 0, np.minimum(transfer, shortest), shortest) if comparable else shortest
    ops = group.ops(traces)
    calls = traces[ranks[0]].calls
    size = max(group.size, len(ranks))
    for position in range(len(ops)):
        join = len(collectives)
        total = int(calls.bytes[group.rows[ranks[0]][position]])
        collectives.append(
            Collective(
                ops[position], group.name, size, total if total >= 0 else None, len(ranks),
                int(transfer[position]), len(ranks) == size, (number, position),
            )
        )  # fmt: skip
        for n in ranks:
            joins[n, int(group.rows[n][position])] = join


def _join_exchange(records, clocks: Clocks, calls, joins, collectives) -> None:
    traces = [r.trace for r in records]
    start = [clocks.corrected(n, traces[n].calls.start_ns[row : row + 1])[0] for n, row in calls]
    end = [clocks.corrected(n, traces[n].calls.end_ns[row : row + 1])[0] for n, row in calls]
    shortest = min(e - s for s, e in zip(start, end, strict=True))
    first, row = calls[0]
    total = int(traces[first].calls.bytes[row])
    join = len(collectives)
    collectives.append(
        Collective(
            "send_recv", "messages", 2, total if total >= 0 else None, len(calls),
            int(min(max(max(end) - max(start), 0), shortest)), True, (-1, join),
        )
    )  # fmt: skip
    for n, call in calls:
        joins[n, int(call)] = join


def _join_alone(records, joins, collectives) -> None:
    """Adds communication that no other rank shows: its time is transfer and waiting, which can't be told apart.
    The shortest of its size is an upper bound of the transfer."""
    for number, record in enumerate(records):
        calls = record.trace.calls
        length = calls.end_ns - calls.start_ns
        shortest: dict[tuple[int, int], int] = {}
        for row in range(len(calls)):
            key = (int(calls.op[row]), int(calls.bytes[row]))
            shortest[key] = min(shortest.get(key, int(length[row])), int(length[row]))
        for row in range(len(calls)):
            if (number, row) in joins:
                continue
            joins[number, row] = len(collectives)
            total, size = int(calls.bytes[row]), int(calls.group_size[row])
            waited = int(length[row]) - shortest[int(calls.op[row]), int(calls.bytes[row])]
            collectives.append(
                Collective(
                    calls.ops[calls.op[row]], calls.groups[calls.group[row]],
                    size if size > 0 else record.trace.world_size or 2, total if total >= 0 else None, 1,
                    int(length[row]), False, waited_ns=waited,
                )
            )  # fmt: skip


def _rank(
    record: RankRecord, number: int, work: Launched, waits: StreamWaits, joins: dict[int, int], boundaries: Int64
) -> RankGraph:
    recorded = record.recorded
    host = host_calls(recorded)
    gap, delay, unexplained = _device_gaps(recorded, work, waits, host)
    if record.waits is not None:
        gap = _all_pauses(work, waits)
        unexplained = 0
    streams = {int(s): i for i, s in enumerate(np.unique(recorded.device.stream))}
    main = _main_stream(recorded, work)
    steps = _Steps(recorded, work, host, waits, joins, streams, boundaries).build(gap, delay)
    for number_of_step, step in enumerate(steps):
        mine = np.flatnonzero((work.step == number_of_step) & (work.stream == main))
        rows = {int(work.row[p]) for p in mine[:1]}
        step.first = next((i for i, row in enumerate(step.row) if row in rows and step.kind[i] != HOST), NONE)
    return RankGraph(
        rank=number if record.trace.rank is None else record.trace.rank,
        steps=steps,
        streams=len(streams),
        waits=waits,
        unlaunched=int((recorded.launch < 0).sum()),
        unexplained_ns=unexplained,
        record=record,
        host=host,
        work=work,
        main=main,
        queue=max(QUEUE_COMMANDS, int(outstanding(recorded).max(initial=0)) + 1),
    )


def _main_stream(recorded: Recorded, work: Launched) -> int:
    """Returns the stream with most computing time."""
    length = np.where(recorded.device.comm[work.row], 0, work.end_ns - work.start_ns)
    return int(np.bincount(work.stream, weights=length).argmax()) if len(work.row) else 0


def _launch_positions(recorded: Recorded, work: Launched, host: HostCalls) -> Int64:
    position = np.full(len(recorded.launches) + 1, NONE, dtype=np.int64)
    position[host.row] = np.arange(len(host.row))
    return position[recorded.launch[work.row]]


def _device_gaps(
    recorded: Recorded, work: Launched, waits: StreamWaits, host: HostCalls
) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the pause after the work before, the delay after the launch's end, and what stays unexplained
    (ns)."""
    count = len(work.row)
    at = _launch_positions(recorded, work, host)
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


def _all_pauses(work: Launched, waits: StreamWaits) -> np.ndarray:
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


class _Steps:
    """Puts the nodes of a rank into steps and in order."""

    def __init__(
        self,
        recorded: Recorded,
        work: Launched,
        host: HostCalls,
        waits: StreamWaits,
        joins: dict[int, int],
        streams: dict[int, int],
        boundaries: Int64,
    ) -> None:
        self._work, self._host, self._waits = work, host, waits
        self._stream = np.array([streams[int(s)] for s in work.stream], dtype=np.int64)
        self._joins = np.array([joins.get(int(row), NONE) for row in work.row], dtype=np.int64)
        self._launch = _launch_positions(recorded, work, host)
        self._boundaries = boundaries

    def build(self, gap: np.ndarray, delay: np.ndarray) -> list[Step]:
        host, work = self._host, self._work
        host_step = np.searchsorted(self._boundaries, host.start_ns, side="right") - 1
        syncing = np.flatnonzero(host.syncs > 0)
        key_host = host.end_ns.copy()
        key_host[syncing] = host.start_ns[syncing]
        key_work = self._work_keys()
        # (key, priority): a launch before its work before the wait for it.
        keys = np.concatenate([key_host, key_work, host.end_ns[syncing]])
        priority = np.concatenate(
            [np.zeros(len(key_host)), np.ones(len(key_work)), np.full(len(syncing), 2)]
        ).astype(np.int64)
        item = np.concatenate([np.arange(len(key_host)), np.arange(len(key_work)), syncing])
        step = np.concatenate([host_step, work.step, host_step[syncing]])
        order = np.lexsort((item, priority, keys, step))
        order = order[step[order] >= 0]
        sources = self._sources()
        found: list[Step] = []
        place_of_host: dict[int, tuple[int, int]] = {}
        place_of_work: dict[int, tuple[int, int]] = {}
        launches_on = np.full(len(host.row), NONE, dtype=np.int64)
        valid = self._launch >= 0
        launches_on[self._launch[valid][::-1]] = self._stream[valid][::-1]
        for number in range(len(self._boundaries)):
            nodes = order[step[order] == number]
            found.append(
                self._step(number, nodes, (priority, item), (gap, delay), (place_of_host, place_of_work),
                           sources, launches_on)
            )  # fmt: skip
        _without_profilers_end(found)
        return found

    def _work_keys(self) -> Int64:
        """Returns when device work is replayed: after its launch's end, and in order on its stream."""
        work, host = self._work, self._host
        ready = np.where(self._launch >= 0, host.end_ns[np.maximum(self._launch, 0)], work.launch_ns)
        syncing = (self._launch >= 0) & (host.syncs[np.maximum(self._launch, 0)] == 3)
        ready = np.where(syncing, work.launch_ns, ready)
        keys = np.maximum(work.start_ns, ready)
        for stream in np.unique(work.stream):
            mine = np.flatnonzero(work.stream == stream)
            keys[mine] = np.maximum.accumulate(keys[mine])
        return keys

    def _sources(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for waiter, source in zip(self._waits.waiter.tolist(), self._waits.source.tolist(), strict=True):
            found.setdefault(waiter, []).append(source)
        return found

    def _step(self, number, nodes, what, timing, places, sources, launches_on) -> Step:
        priority, item = what
        gap, delay = timing
        place_of_host, place_of_work = places
        host, work = self._host, self._work
        step = Step([], [], [], [], [], [], [], [], {}, NONE, NONE)
        last_sync: dict[int, int] = {}
        for index, node in enumerate(nodes.tolist()):
            at = int(item[node])
            if priority[node] == 1:
                launch = place_of_host.get(int(self._launch[at]))
                step.kind.append(WORK if self._joins[at] < 0 else JOIN)
                step.ref.append(launch[1] if launch is not None and launch[0] == number else NONE)
                step.stream.append(int(self._stream[at]))
                step.gap.append(float(gap[at]))
                step.delay.append(float(delay[at]))
                step.length.append(float(work.end_ns[at] - work.start_ns[at]))
                step.join.append(int(self._joins[at]))
                step.row.append(int(work.row[at]))
                place_of_work[at] = (number, index)
                waits = [
                    (number - p[0], p[1]) for s in sources.get(at, ()) if (p := place_of_work.get(s)) is not None
                ]
                if waits:
                    step.waits[index] = waits
                continue
            sync = priority[node] == 2
            before = int(host.before[at])
            place = place_of_host.get(before) if before >= 0 else None
            step.kind.append(SYNC if sync else HOST)
            step.ref.append(place_of_host[at][1] if sync else place[1] if place and place[0] == number else NONE)
            step.stream.append(int(launches_on[at]) if not sync else int(host.syncs[at]))
            step.gap.append(0.0 if sync else float(host.gap_ns[at]))
            step.delay.append(0.0)
            step.length.append(0.0 if sync else float(host.work_ns[at]))
            step.join.append(NONE)
            step.row.append(NONE)
            if sync:
                target = self._sync_target(at, last_sync, place_of_work)
                if target is not None:
                    step.waits[index] = [(number - target[0], target[1])]
            place_of_host[at] = (number, index)
            step.last_host = index
        return step

    def _sync_target(self, at: int, _last: dict[int, int], place_of_work: dict) -> tuple[int, int] | None:
        """Returns the work that a call of the host waits for; None for the whole device."""
        host, work = self._host, self._work
        if host.syncs[at] == 2:
            return None
        if host.syncs[at] == 3:
            mine = np.flatnonzero(self._launch == at)
            return place_of_work.get(int(mine[0])) if len(mine) else None
        before = int(np.searchsorted(work.launch_ns, host.start_ns[at]))
        for position in range(before - 1, max(before - 4096, -1), -1):
            if work.thread[position] == host.thread[at] and work.end_ns[position] <= host.end_ns[at] + 2000:
                return place_of_work.get(position)
        return None


def _recorded(ranks: list[RankGraph]) -> list[float]:
    """Returns the recorded time from each step's first device work to the next one's, the last to the end of its
    work; the mean over ranks, without the first step."""
    lengths = []
    for rank in ranks:
        starts = []
        for step in rank.steps:
            row = step.row[step.first] if step.first >= 0 else NONE
            starts.append(rank.record.recorded.device.start_ns[row] if row >= 0 else None)
        end = int(rank.work.end_ns.max()) if len(rank.work.row) else 0
        known = [int(s) for s in starts if s is not None]
        lengths.append(np.diff([*known, end])[1:] if len(known) > 1 else np.diff([*known, end]))
    count = min((len(part) for part in lengths), default=0)
    return np.mean([part[:count] for part in lengths], axis=0).tolist() if count else []


def _without_profilers_end(steps: list[Step]) -> None:
    """Takes out of the last step the waits at its end that other steps don't have: the profiler's own."""
    if len(steps) < 2:
        return
    last = steps[-1]
    extra = last.kind.count(SYNC) - steps[-2].kind.count(SYNC)
    launches = [i for i, kind in enumerate(last.kind) if kind == HOST and last.stream[i] >= 0]
    launch = launches[-1] if launches else NONE
    for index in range(len(last.kind) - 1, launch, -1):
        if last.kind[index] == SYNC and extra > 0:
            last.waits.pop(index, None)
            last.stream[index] = 1
            extra -= 1
