"""Infers which device work waits for which work of another stream, because traces don't contain it.

A trace has the host's calls that record events and that make streams wait for them, but neither the event nor the
stream. Three rules stand in for them:

1. An event that is recorded right before the wait stands for the newest work that its thread launched; the wait
   concerns the next other stream that the thread launches on, as many streams as there are waits.
2. A later wait concerns the next work that is launched, which waits for the newest work on every other stream. An
   annotation around the wait that names a collective (`FSDP::all_gather_copy_out`) restricts it to the streams of
   that collective. Waits inside a collective's own annotation are the communication library's.
3. Communication of one process group runs in order of launch, also on several streams: NCCL makes a kernel of a
   communicator wait for the one before.
4. Work that began right after other streams' work had ended, though nothing known kept it, waited for that work.
5. What any step or rank refutes is not so: where a piece of work began before the one that it should wait for had
   ended, the edge is dropped, and rule 2's goes back to work that ended early enough in all steps and ranks.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wirecost.trace.operations import UNKNOWN, operation
from wirecost.trace.recorded import Annotation, Int64, Recorded
from wirecost.whatif.launched import Launched

_RECORD = re.compile(r"eventrecord", re.IGNORECASE)
_WAIT = re.compile(r"streamwaitevent", re.IGNORECASE)
_LIBRARY = re.compile(r"^(nccl|rccl|xccl|hccl|mccl)[a-z]*:", re.IGNORECASE)
_TOLERANCE_NS = 1000
_AHEAD = 64  # launches that are looked through for the stream that a wait concerns
_ADJACENT_NS = 20_000  # between recording an event and waiting for it, by the code that does both
_EVIDENT_NS = 20_000  # from the end of work to the start of what waited for it
_UNEXPLAINED_NS = 30_000  # how long work must have been kept by something unknown for rule 4
_MOST_OVERLAPS = 0.02  # share of a group's communication that may overlap for rule 3 to hold
_RESTRICTS = ("all_gather", "reduce_scatter", "all_to_all")


@dataclass
class _Late:
    """Rule 2's candidate: `waiter` waits for the work on `stream` up to `newest` (a position on that stream)."""

    waiter: int
    stream: int
    newest: int
    back: int


@dataclass
class StreamWaits:
    """The inferred waits of one rank: pairs of positions in its `Launched`, and how many were inferred, refuted
    (dropped), and moved back to earlier work."""

    waiter: Int64
    source: Int64
    inferred: int = 0
    refuted: int = 0
    moved: int = 0


@dataclass
class _Candidates:
    adjacent: list[tuple[int, int]] = field(default_factory=list)
    late: list[_Late] = field(default_factory=list)


def stream_waits(ranks: Sequence[tuple[Recorded, Launched]]) -> list[StreamWaits]:
    """Returns the waits between streams of each rank, refuted ones left out."""
    candidates = [_candidates(recorded, work) for recorded, work in ranks]
    back: dict[tuple, int] = defaultdict(int)
    refuted: set[tuple] = set()
    for (_, work), found in zip(ranks, candidates, strict=True):
        for late in found.late:
            key = (work.signature, *_place(work, late.waiter), late.stream)
            back[key] = max(back[key], late.back)
        for waiter, source in found.adjacent:
            if work.end_ns[source] > work.start_ns[waiter] + _TOLERANCE_NS:
                refuted.add((work.signature, *_place(work, waiter), *_place(work, source)))
    results = []
    for (recorded, work), found in zip(ranks, candidates, strict=True):
        pairs: set[tuple[int, int]] = set()
        dropped = moved = 0
        for waiter, source in found.adjacent:
            if (work.signature, *_place(work, waiter), *_place(work, source)) in refuted:
                dropped += 1
            else:
                pairs.add((waiter, source))
        on = {stream: work.on(stream) for stream in {late.stream for late in found.late}}
        for late in found.late:
            steps_back = back[(work.signature, *_place(work, late.waiter), late.stream)]
            at = late.newest - steps_back
            moved += steps_back > 0
            if at < 0:
                dropped += 1
                continue
            pairs.add((late.waiter, int(on[late.stream][at])))
        pairs.update(_evident(recorded, work, pairs, refuted))
        ordered = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        results.append(StreamWaits(ordered[:, 0], ordered[:, 1], len(ordered), dropped, moved))
    return results


def _place(work: Launched, position: int) -> tuple[int, int]:
    return int(work.stream[position]), int(work.place[position])


def _candidates(recorded: Recorded, work: Launched) -> _Candidates:
    launches = recorded.launches
    found = _Candidates()
    if len(work.row) == 0 or len(np.unique(work.stream)) < 2:
        return found
    is_record = np.array([bool(_RECORD.search(n)) for n in launches.names], dtype=bool)
    is_wait = np.array([bool(_WAIT.search(n)) for n in launches.names], dtype=bool)
    calls = np.flatnonzero((is_record | is_wait)[launches.name] & (launches.start_ns >= work.launch_ns[0]))
    inside_library = _inside(
        launches.thread[calls],
        launches.start_ns[calls],
        [
            (r.thread, r.start_ns, r.end_ns)
            for r in recorded.host_ranges
            if r.annotation and _LIBRARY.match(r.name)
        ],
    )
    calls = calls[~inside_library]
    restricted = _restrictions(recorded, launches.thread[calls], launches.start_ns[calls])
    streams_of = _streams_of_operations(recorded, work)
    by_thread = {int(t): np.flatnonzero(work.thread == t) for t in np.unique(work.thread)}
    on_stream = {int(s): work.on(int(s)) for s in np.unique(work.stream)}
    per_thread: dict[int, list[int]] = defaultdict(list)
    for number, call in enumerate(calls.tolist()):
        per_thread[int(launches.thread[call])].append(number)
    for thread, numbers in per_thread.items():
        mine = by_thread.get(thread, np.empty(0, dtype=np.int64))
        mine_ns = work.launch_ns[mine]
        source, since, chain, until = -1, -1, 0, 0
        for number in numbers:
            call = int(calls[number])
            at = int(np.searchsorted(mine_ns, launches.start_ns[call]))  # launches of this thread before the call
            if is_record[launches.name[call]]:
                source, since, chain = (int(mine[at - 1]) if at else -1), at, 0
                until = int(launches.end_ns[call])
                continue
            if source >= 0 and since == at and launches.start_ns[call] - until <= _ADJACENT_NS:
                until = int(launches.end_ns[call])
                waiter = _other_stream(work, mine, at, int(work.stream[source]), chain)
                chain += 1
                if waiter is not None:
                    found.adjacent.append((waiter, source))
                continue
            _late(work, on_stream, (mine, at), launches.start_ns[call], streams_of.get(restricted[number]), found)
    found.adjacent += _communicators(recorded, work)
    return found


def _communicators(recorded: Recorded, work: Launched) -> list[tuple[int, int]]:
    """Returns rule 3's pairs (waiter, source): neighbours in one process group that run on different streams."""
    calls = recorded.device.calls
    by_group: dict[tuple[str, str], list[int]] = defaultdict(list)
    for position, row in enumerate(work.row.tolist()):
        call = calls.get(row)
        if call is not None:
            by_group[call.group, call.members].append(position)
    found: list[tuple[int, int]] = []
    for positions in by_group.values():
        pairs = [
            (later, earlier)
            for earlier, later in itertools.pairwise(positions)
            if work.stream[earlier] != work.stream[later]
        ]
        overlaps = sum(work.end_ns[earlier] > work.start_ns[later] + _TOLERANCE_NS for later, earlier in pairs)
        if pairs and overlaps <= _MOST_OVERLAPS * len(pairs):
            found += pairs
    return found


def _evident(
    recorded: Recorded, work: Launched, pairs: set[tuple[int, int]], refuted: set[tuple]
) -> list[tuple[int, int]]:
    """Returns rule 4's pairs (waiter, source)."""
    count = len(work.row)
    if count == 0:
        return []
    kept_until = recorded.launches.end_ns[recorded.launch[work.row]].astype(np.int64).copy()
    for stream in np.unique(work.stream):
        mine = work.on(int(stream))
        kept_until[mine[1:]] = np.maximum(kept_until[mine[1:]], np.maximum.accumulate(work.end_ns[mine])[:-1])
    for waiter, source in pairs:
        kept_until[waiter] = max(kept_until[waiter], work.end_ns[source])
    by_end = np.argsort(work.end_ns, kind="stable")
    ends = work.end_ns[by_end]
    found = []
    for waiter in np.flatnonzero(work.start_ns - kept_until > _UNEXPLAINED_NS).tolist():
        start = work.start_ns[waiter]
        last = int(np.searchsorted(ends, start + _TOLERANCE_NS, side="right")) - 1
        for at in range(last, max(last - _AHEAD, -1), -1):
            source = int(by_end[at])
            if ends[at] < start - _EVIDENT_NS:
                break
            if work.stream[source] == work.stream[waiter] or source >= waiter:
                continue
            if (work.signature, *_place(work, waiter), *_place(work, source)) not in refuted:
                found.append((waiter, source))
            break
    return found


def _other_stream(work: Launched, mine: Int64, at: int, stream: int, number: int) -> int | None:
    """Returns the first work that the thread launches next on the `number`-th stream other than `stream`."""
    seen: list[int] = []
    for position in mine[at : at + _AHEAD].tolist():
        other = int(work.stream[position])
        if other == stream or other in seen:
            continue
        if len(seen) == number:
            return position
        seen.append(other)
    return None


def _late(
    work: Launched,
    on_stream: dict[int, Int64],
    following: tuple[Int64, int],
    time_ns: int,
    only: set[int] | None,
    found: _Candidates,
) -> None:
    mine, at = following
    after = int(np.searchsorted(work.launch_ns, time_ns))
    if after >= len(work.row):
        return
    waiter = int(mine[at]) if at < len(mine) else after
    # Another thread goes on where this one launches nothing for long: an optimizer after the backward pass.
    if work.launch_ns[waiter] - work.launch_ns[after] > 0 and work.thread[after] != work.thread[waiter]:
        waiter = after
    for stream, positions in on_stream.items():
        if stream == int(work.stream[waiter]) or (only is not None and stream not in only):
            continue
        newest = int(np.searchsorted(work.launch_ns[positions], time_ns)) - 1
        if newest < 0:
            continue
        ended = int(np.searchsorted(work.end_ns[positions], work.start_ns[waiter] + _TOLERANCE_NS, side="right"))
        found.late.append(_Late(waiter, stream, newest, max(newest + 1 - ended, 0)))


def _inside(thread: Int64, time_ns: Int64, ranges: list[tuple[int, int, int]]) -> np.ndarray:
    """Returns whether each call lies in one of the (thread, start, end) ranges; those of a thread are disjoint."""
    found = np.zeros(len(thread), dtype=bool)
    table = np.array(sorted(ranges), dtype=np.int64).reshape(-1, 3)
    for number in np.unique(table[:, 0]):
        spans = table[table[:, 0] == number]
        mine = thread == number
        at = np.searchsorted(spans[:, 1], time_ns[mine], side="right") - 1
        found[mine] = (at >= 0) & (time_ns[mine] <= spans[np.maximum(at, 0), 2])
    return found


def _restrictions(recorded: Recorded, thread: Int64, time_ns: Int64) -> list[str]:
    """Returns the collective that the innermost annotation around each call names, `unknown` where none does."""
    by_thread: dict[int, list[Annotation]] = defaultdict(list)
    for annotation in recorded.cpu_annotations:
        op = operation(annotation.name) if "::" in annotation.name else UNKNOWN
        if op in _RESTRICTS:
            by_thread[annotation.thread].append(annotation)
    found = [UNKNOWN] * len(thread)
    for number, listed in by_thread.items():
        starts = np.array([a.start_ns for a in listed], dtype=np.int64)
        for call in np.flatnonzero(thread == number).tolist():
            at = int(np.searchsorted(starts, time_ns[call], side="right")) - 1
            if at >= 0 and listed[at].end_ns >= time_ns[call]:
                found[call] = operation(listed[at].name)
    return found


def _streams_of_operations(recorded: Recorded, work: Launched) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    rows = set(work.row.tolist())
    for row, call in recorded.device.calls.items():
        if row in rows:
            found[call.op].add(int(recorded.device.stream[row]))
    return dict(found)
