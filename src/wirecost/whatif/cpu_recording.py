"""Recordings of jobs on processors (gloo), in the form of a GPU's, so that the same rules replay them.

On processors the thread that trains computes itself. Each collective is issued by it (`c10d::allreduce_`) and runs
on one of gloo's worker threads, whose annotation (`gloo:all_reduce`) lasts from the worker's start to the end. The
training thread is cut where it issues a collective, and where it waits for one: nothing of it is recorded there,
and a collective ends. Its pieces become the work of one stream, and each worker thread becomes another stream. A
collective follows the piece before its issue, and the piece after a wait follows the collective. Messages of
pipelines are not matched over ranks, because a sender ends before its receiver (gloo buffers them).
`record_shapes=True` tells the bytes.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np

from wirecost.breakdown.intervals import Intervals, measure_before, merge, subtract
from wirecost.trace.categories import KERNEL
from wirecost.trace.classify import Classifier
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.events import STEP, Collector
from wirecost.trace.families import HOST_ANNOTATIONS
from wirecost.trace.operations import operation
from wirecost.trace.recorded import Annotation, Call, Columns, Int64, Launches, Recorded
from wirecost.trace.source import TraceError
from wirecost.trace.typed import EventDecoder, Plain

_LEAST_WAIT_NS = 100_000
"""Shortest pause of the training thread that may be a wait for a collective."""
_MOSTLY = 0.5
"""A pause counts as a wait if the collective that ends in it lasts for this share of it."""
_LATE_NS, _LATE = 2_000_000, 0.02
"""By how much a collective's annotation may end after the wait for it, at least, and as a share of the wait."""
_PREEMPTED_NS = 10_000_000
"""The same where no annotation ends that close. What follows the wait may take the core from gloo's thread before
that ends the annotation (6 ms after an optimizer's step with two ranks on two cores)."""
_BYTES = {
    "double": 8, "long int": 8, "float": 4, "int": 4, "c10::BFloat16": 2, "c10::Half": 2, "short int": 2,
    "unsigned char": 1, "signed char": 1, "bool": 1,
}  # fmt: skip
_WAITS = re.compile(r"::_?wait(_tensor)?$")
"""Operators that wait for a collective."""
_COMPUTE, _WAIT_CALL, _LAUNCH_CALL = "training thread", "streamSynchronize", "launch"


@dataclass
class _Collective:
    op: str
    start_ns: int
    end_ns: int
    thread: int
    bytes: int | None


@dataclass
class CpuRecording:
    """A recording in a GPU's form, and which device event waits for which other one, by row."""

    recorded: Recorded
    waits: list[tuple[int, int]]


class CpuCollector(Collector):
    """Keeps each thread's operators, and collectives with their sizes."""

    def __init__(self, classifier: Classifier, diagnostics: DiagnosticCounts, decoder: EventDecoder) -> None:
        super().__init__(classifier, diagnostics, decoder, keep_cpu=True)
        self.operators_of: dict[int, list[tuple[int, int]]] = {}
        self.issued: list[tuple[int, int]] = []  # (start, thread)
        self.collectives: list[_Collective] = []

    def _operator(self, event: Plain) -> None:
        super()._operator(event)
        span, name = self._span(event), self._name_of(event)
        if event.ph != "X" or span is None or name is None:
            return
        if _WAITS.search(name):
            return
        thread = self._host.thread_of(event)
        self.operators_of.setdefault(thread, []).append(span)
        if name.startswith("c10d::") and self._host.communicates(name):
            self.issued.append((span[0], thread))

    def _cpu_annotation(self, event: Plain) -> None:
        super()._cpu_annotation(event)
        name, span = self._name_of(event), self._span(event)
        if name is not None and span is not None and name.startswith(HOST_ANNOTATIONS):
            op = operation(name)
            self.collectives.append(_Collective(op, *span, self._host.thread_of(event), _size(bytes(event.args))))


def _size(arguments: bytes) -> int | None:
    """Returns the bytes of a collective's first input; None where shapes aren't recorded."""
    try:
        found = msgspec.json.decode(arguments, type=dict)
        shape, kind = found["Input Dims"][0], found["Input type"][0]
        if not isinstance(shape, list) or not shape or not all(type(n) is int and n >= 0 for n in shape):
            return None
        size = _BYTES.get(kind)
        return None if size is None else int(np.prod(np.array(shape, dtype=float))) * size
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError):
        return None


def cpu_recording(collector: CpuCollector, recorded: Recorded) -> CpuRecording:
    """Returns the recording of one rank on processors.

    Raises:
        TraceError: if it marks no steps, or its collectives can't be told.
    """
    steps = [a for a in recorded.cpu_annotations if STEP.fullmatch(a.name)]
    if not steps:
        raise TraceError("a recording of processors without steps (profiler.step()) can't be replayed")
    if not collector.collectives:
        raise TraceError("a recording of processors without collectives (gloo) can't be replayed")
    thread = Counter(a.thread for a in steps).most_common(1)[0][0]
    begin = min(a.start_ns for a in steps)
    issued = sorted(at for at, of in collector.issued if of == thread and at >= begin)
    run = sorted((c for c in collector.collectives if c.start_ns >= begin), key=lambda c: c.start_ns)
    if len(issued) != len(run) or any(i > c.start_ns for i, c in zip(issued, run, strict=True)):
        raise TraceError(
            f"{len(issued)} collectives are issued by the training thread and {len(run)} run by gloo: which is "
            "which can't be told, so the recording can't be replayed"
        )
    busy = merge(_innermost(np.array(collector.operators_of.get(thread, []), dtype=np.int64).reshape(-1, 2)))
    for collective, at in zip(run, issued, strict=True):
        if collective.thread == thread:
            # A message is on its way before its annotation begins, which follows the call that issues it.
            collective.start_ns = at
    _on_lanes(run, thread)
    return _Builder(recorded, steps, (begin, thread)).build(issued, run, _waits(busy, run, steps))


def _innermost(spans: Intervals) -> Intervals:
    """Returns the operators that call no other ones: one that does may wait between them."""
    order = np.lexsort((-spans[:, 1], spans[:, 0]))
    spans = spans[order]
    inner = np.ones(len(spans), dtype=bool)
    inner[:-1] = spans[1:, 0] >= spans[:-1, 1]
    return spans[inner]


def _on_lanes(run: list[_Collective], thread: int) -> None:
    """Puts messages, which run beside the thread that issued them, on rows of their own so that none overlap."""
    lanes: list[int] = []  # the end of the last message of each
    for collective in run:
        if collective.thread != thread:
            continue
        lane = next((n for n, end in enumerate(lanes) if end <= collective.start_ns), len(lanes))
        lanes[lane:] = [collective.end_ns, *lanes[lane + 1 :]]
        collective.thread = -1 - lane


def _waits(busy: Intervals, run: list[_Collective], steps: list[Annotation]) -> list[tuple[int, int, int]]:
    """Returns the (start, end, number of the collective) of the training thread's waits.

    Gloo wakes the training thread before the collective's annotation ends, which the recording itself may delay.
    The collective is then cut to the end of the wait.
    """
    whole = np.array([[steps[0].start_ns, max(a.end_ns for a in steps)]], dtype=np.int64)
    found = []
    order = sorted(range(len(run)), key=lambda n: run[n].end_ns)
    ends = np.array([run[n].end_ns for n in order], dtype=np.int64)
    for start, end in subtract(whole, busy).tolist():
        if end - start < _LEAST_WAIT_NS:
            continue
        usual = min(max(_LATE_NS, round(_LATE * (end - start))), (end - start) // 4)
        preempted = min(max(_PREEMPTED_NS, usual), (end - start) // 4)
        at = _last_to_end(run, order, ends, (start, end), usual)
        if at is None:
            at = _last_to_end(run, order, ends, (start, end), preempted)
        if at is None:
            continue
        last = run[at]
        last.end_ns = min(last.end_ns, end)
        found.append((start, last.end_ns, at))
    return found


def _last_to_end(
    run: list[_Collective], order: list[int], ends: Int64, pause: tuple[int, int], late: int
) -> int | None:
    """Returns the number of the collective that ends last until `late` ns after a pause; None if it ended early in
    the pause, or before it.

    Args:
        order: the numbers of the collectives by their ends, which are `ends`.
    """
    start, end = pause
    at = int(np.searchsorted(ends, end + late, side="right")) - 1
    while at >= 0 and run[order[at]].start_ns >= end:
        at -= 1
    if at < 0 or ends[at] <= start or ends[at] - start < _MOSTLY * (end - start):
        return None
    return order[at]


@dataclass
class _Event:
    start: int
    end: int
    stream: int
    launch: int
    call: Call | None = None


@dataclass
class _Builder:
    recorded: Recorded
    steps: list[Annotation]
    begin: tuple[int, int]
    events: list[_Event] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    calls: list[tuple[int, int, int, str]] = field(default_factory=list)  # start, end, correlation, name

    def build(self, issued: list[int], run: list[_Collective], waits: list[tuple[int, int, int]]) -> CpuRecording:
        last = max(a.end_ns for a in self.steps)
        step_starts = sorted(a.start_ns for a in self.steps)
        cuts = sorted({*step_starts, *issued, *(w[0] for w in waits), *(w[1] for w in waits), last})
        waited = merge(np.array([w[:2] for w in waits], dtype=np.int64).reshape(-1, 2))
        followed = {end: number for _, end, number in waits}
        row_of: dict[int, int] = {}
        pieces: list[tuple[int, int]] = []  # (end, row)
        pending: list[tuple[int, int]] = []  # (row of the piece, collective that it follows)
        after = None
        issue_at: dict[int, list[int]] = {}
        for number, at in enumerate(issued):
            issue_at.setdefault(at, []).append(number)
        workers = {t: i + 1 for i, t in enumerate(sorted({c.thread for c in run}))}
        for start, end in itertools.pairwise(cuts):
            after = followed.get(start, after)
            for number in issue_at.get(start, ()):
                c = run[number]
                row_of[number] = len(self.events)
                if pieces:
                    self.waits.append((len(self.events), pieces[-1][1]))
                self.events.append(_Event(c.start_ns, c.end_ns, workers[c.thread], start, self._call(c)))
            if measure_before(waited, np.array([end]))[0] - measure_before(waited, np.array([start]))[0] > 0:
                continue
            if after is not None:
                pending.append((len(self.events), after))
                after = None
            pieces.append((end, len(self.events)))
            self.events.append(_Event(start, end, 0, start))
        self.waits += [(row, row_of[number]) for row, number in pending if number in row_of]
        return CpuRecording(self._recorded(step_starts), self.waits)

    def _call(self, c: _Collective) -> Call:
        info = self.recorded.metadata.get("distributedInfo")
        world = info.get("world_size") if isinstance(info, dict) else None
        size = world if isinstance(world, int) else None
        total = c.bytes
        if total is not None and size and c.op == "all_gather":
            total *= size
        return Call(op=c.op, group="0", group_size=size, bytes=total, op_source="args")

    def _recorded(self, step_starts: list[int]) -> Recorded:
        """Returns the columns. The host launches a step's work when it begins, and waits for its last piece."""
        events, thread = self.events, self.begin[1]
        step_of = np.searchsorted(np.array(step_starts), [e.launch for e in events], side="right") - 1
        launches: list[tuple[int, int, int, str]] = []
        correlation = np.full(len(events), -1, dtype=np.int64)
        for step, start in enumerate(step_starts):
            rows = np.flatnonzero(step_of == step).tolist()
            for place, row in enumerate(rows):
                correlation[row] = row + 1
                launches.append((start + place, start + place + 1, row + 1, _LAUNCH_CALL))
            pieces = [events[row].end for row in rows if events[row].stream == 0]
            if pieces:
                launches.append((start + len(rows), max(*pieces, start + len(rows) + 1), 0, _WAIT_CALL))
            for row in rows:
                events[row].start = max(events[row].start, start + len(rows))
                events[row].end = max(events[row].end, events[row].start)
        names = [_LAUNCH_CALL, _WAIT_CALL]
        table = np.array([(a, b, c) for a, b, c, _ in launches], dtype=np.int64).reshape(-1, 3)
        streams = max(e.stream for e in events) + 1
        return Recorded(
            device=Columns(
                start_ns=np.array([e.start for e in events], dtype=np.int64),
                end_ns=np.array([e.end for e in events], dtype=np.int64),
                kind=np.full(len(events), KERNEL, dtype=np.int8),
                name=np.array([0 if e.call is None else 1 for e in events], dtype=np.int64),
                stream=np.array([e.stream for e in events], dtype=np.int64),
                comm=np.array([e.call is not None for e in events], dtype=bool),
                names=[_COMPUTE, "gloo all_reduce"],
                streams=[("cpu", str(n)) for n in range(streams)],
                calls={row: e.call for row, e in enumerate(events) if e.call is not None},
                correlation=correlation,
            ),
            cpu_annotations=self.steps,
            launches=Launches(
                start_ns=table[:, 0],
                end_ns=table[:, 1],
                correlation=np.where(table[:, 2] > 0, table[:, 2], -1),
                name=np.array([names.index(n) for *_, n in launches], dtype=np.int64),
                thread=np.full(len(launches), thread, dtype=np.int64),
                names=names,
                threads=[("cpu", str(n)) for n in range(thread + 1)],
            ),
            metadata=self.recorded.metadata,
            record_start_ns=self.recorded.record_start_ns,
            record_end_ns=self.recorded.record_end_ns,
        )


def positions(rows: Int64, waits: list[tuple[int, int]]) -> Int64:
    """Returns waits by row as (waiter, source) positions among `rows`; those that lie outside are left out."""
    at = {int(row): number for number, row in enumerate(rows)}
    found = [(at[waiter], at[source]) for waiter, source in waits if waiter in at and source in at]
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
