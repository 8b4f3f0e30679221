"""One rank: from the columns of a file to its parts, iterations and communication calls."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from wirecost.breakdown import Parts, split_window
from wirecost.breakdown.intervals import Intervals, measure_before, merge, subtract
from wirecost.trace.classify import KERNEL, UNKNOWN, Classifier, operation
from wirecost.trace.events import Annotation, Call, Collector, Columns, Recorded
from wirecost.trace.identity import distributed_info, rank_by_name
from wirecost.trace.numbers import LIMIT_NS
from wirecost.trace.problems import Problem, Problems
from wirecost.trace.source import SQLITE, Progress, TraceError, chunks, magic
from wirecost.trace.stream import EventStream
from wirecost.trace.timeline import Timeline
from wirecost.trace.windows import Window, windows

Int64 = npt.NDArray[np.int64]

# Unix time of 2001-09-09 in ns: a start beyond it is absolute by itself, without a base time.
_ABSOLUTE_NS = 10**18


class Options(msgspec.Struct, frozen=True):
    """How to read: the iterations' windows (see `windows.check_choice`), patterns of more communication, and
    whether a drawable time line is wanted (of how many
    stretches at most)."""

    window: str = "auto"
    comm_patterns: tuple[str, ...] = ()
    timeline_segments: int = 0


class Calls(msgspec.Struct):
    """The communication calls of a rank in order of start: int64 columns of equal length; -1 is unknown.

    `exposed_ns` shares out the exposed communication: where calls overlap, an instant counts for the one that
    started first, so that the column sums to what is exposed. `iteration` indexes the rank's iterations,
    `op`, `group`, `after` and `before` their lists of names.
    """

    start_ns: Int64
    end_ns: Int64
    op: Int64
    group: Int64
    group_size: Int64
    bytes: Int64
    sequence: Int64
    exposed_ns: Int64
    iteration: Int64
    after: Int64
    before: Int64
    ops: list[str]
    groups: list[str]
    members: list[str]  # of each group, as the trace writes them; empty where it doesn't
    kernels: list[str]
    inferred: bool = False  # operations by the order of the CPU annotations

    def __len__(self) -> int:
        return len(self.start_ns)


class IterationParts(msgspec.Struct):
    window: Window
    parts: Parts


class RankTrace(msgspec.Struct):
    """What one file says. Times are ns on the file's clock plus its base time; `parts` is None without events."""

    file: str
    rank: int | None
    rank_source: str
    world_size: int | None
    backend: str | None
    device: str  # "gpu" or "cpu": whose time line it is
    absolute_clock: bool
    resolution_ns: int
    start_ns: int
    end_ns: int
    parts: Parts | None
    iterations: list[IterationParts]
    calls: Calls
    problems: list[Problem]
    events: int
    timeline: Timeline | None = None


def read_file(path: Path, options: Options, progress: Progress | None = None) -> list[RankTrace]:
    """Reads one file whole: one rank, or each process of an Nsight Systems export.

    Raises:
        TraceError: for a file that is no trace.
    """
    # Millions of short-lived objects without a cycle among them: looking for cycles costs a tenth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _read_file(path, options, progress)
    finally:
        if collecting:
            gc.enable()


def _read_file(path: Path, options: Options, progress: Progress | None) -> list[RankTrace]:
    classifier = Classifier(options.comm_patterns)
    if not magic(path).startswith(SQLITE):
        problems = Problems()
        recorded, count = _recorded(path, classifier, problems, progress)
        return [_rank(path, recorded, count=count, options=options, classifier=classifier, problems=problems)]
    from wirecost.trace.nsys import processes, read_nsys

    found = []
    for process in processes(path):
        problems = Problems()
        recorded, count = read_nsys(path, classifier, problems, process)
        found.append(_rank(path, recorded, count=count, options=options, classifier=classifier, problems=problems))
    if len(found) > 1:
        # The file's name is of the node then, not of a rank.
        for number, trace in enumerate(found):
            trace.file, trace.rank, trace.rank_source = f"{path} (process {number})", None, "unknown"
    if progress is not None:
        progress(path.stat().st_size)
    return found


def _recorded(
    path: Path, classifier: Classifier, problems: Problems, progress: Progress | None
) -> tuple[Recorded, int]:
    recorded, count = _pass(path, classifier, problems, progress, keep_cpu=False)
    host_only = [a for a in recorded.cpu_annotations if a.name.startswith(("gloo:", "mpi:", "ucc:"))]
    if len(recorded.device.start_ns) == 0 and host_only:
        # A run on CPUs: its operators are the compute, which a first pass needn't keep.
        recorded, count = _pass(path, classifier, Problems(), None, keep_cpu=True)
    return recorded, count


def _pass(
    path: Path, classifier: Classifier, problems: Problems, progress: Progress | None, *, keep_cpu: bool
) -> tuple[Recorded, int]:
    stream = EventStream(chunks(path, problems, progress), problems)
    collector = Collector(classifier, problems, keep_cpu=keep_cpu)
    count = 0
    try:
        for events, text in stream:
            collector.add((events, text))
            count += len(events)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from error
    if not stream.saw_events:
        raise TraceError(f"{path}: holds no list 'traceEvents'; expected a PyTorch profiler trace")
    return collector.finish(stream.metadata), count


def _rank(
    path: Path,
    recorded: Recorded,
    *,
    count: int,
    options: Options,
    classifier: Classifier,
    problems: Problems,
) -> RankTrace:
    info = distributed_info(recorded.metadata)
    rank, source = info.get("rank"), "distributedInfo"
    if rank is None:
        rank, source = rank_by_name(path), "file name"
    if rank is None:
        source = "unknown"
    columns, device = recorded.device, "gpu"
    if len(columns.start_ns) == 0:
        columns, device = _host_columns(recorded), "cpu"
        problems.add("cpu_only" if len(columns.start_ns) else "no_device_events", int(columns.comm.sum()) or 1)
    base, based = _base_ns(recorded.metadata, problems)
    sets = _sets(columns)
    found = windows(recorded, options.window, problems, classifier.communicates)
    timed = columns.end_ns > columns.start_ns
    parts, start, end = None, 0, 0
    if timed.any():
        start, end = int(columns.start_ns[timed].min()), int(columns.end_ns[timed].max())
        parts = split_window(start, end, compute=sets[0], comm=sets[1], memory=sets[2])
    iterations = [
        IterationParts(w, split_window(w.start_ns, w.end_ns, compute=sets[0], comm=sets[1], memory=sets[2]))
        for w in found
        if parts is not None
    ]
    calls = _calls(columns, sets, recorded, iterations, problems)
    several = {columns.streams[s][0] for s in np.unique(columns.stream)} if len(columns.stream) else set()
    problems.add("several_devices", len(several) if len(several) > 1 else 0)
    problems.add("overlap_on_stream", _overlaps(columns, recorded.sub_microsecond))
    world = info.get("world_size")
    problems.add("no_communication", bool(world and world > 1 and parts is not None and len(calls) == 0))
    timeline = None
    if options.timeline_segments and parts is not None:
        timeline = Timeline.of(start, end, *sets, base_ns=base, limit=options.timeline_segments)
    for iteration in iterations:
        iteration.window.start_ns += base
        iteration.window.end_ns += base
    calls.start_ns += base
    calls.end_ns += base
    return RankTrace(
        file=str(path),
        rank=rank,
        rank_source=source,
        world_size=world,
        backend=info.get("backend"),
        device=device,
        absolute_clock=based or start + base > _ABSOLUTE_NS,
        resolution_ns=1 if recorded.sub_microsecond else 1000,
        start_ns=start + base,
        end_ns=end + base,
        parts=parts,
        iterations=iterations,
        calls=calls,
        problems=problems.listed(),
        events=count,
        timeline=timeline,
    )


def _base_ns(metadata: dict[str, Any], problems: Problems) -> tuple[int, bool]:
    """The base time in ns, and whether the file has one."""
    base = metadata.get("baseTimeNanoseconds")
    if base is None:
        return 0, False
    if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < LIMIT_NS:
        return base, True
    problems.add("broken_metadata", detail="baseTimeNanoseconds")
    return 0, False


def _sets(columns: Columns) -> tuple[Intervals, Intervals, Intervals]:
    """Merged (compute, communication, copies and fills)."""
    spans = np.stack([columns.start_ns, columns.end_ns], axis=1)
    kernel = columns.kind == KERNEL
    return merge(spans[kernel & ~columns.comm]), merge(spans[columns.comm]), merge(spans[~kernel & ~columns.comm])


def _host_columns(recorded: Recorded) -> Columns:
    """The CPU's time line of a run without a device: operators compute, annotated collectives communicate."""
    comm = [a for a in recorded.cpu_annotations if a.name.startswith(("gloo:", "mpi:", "ucc:"))]
    ops = recorded.cpu_ops if comm else []
    spans = np.array([(a.start_ns, a.end_ns) for a in comm] + ops, dtype=np.int64).reshape(-1, 2)
    names = [a.name for a in comm] + ["cpu operators"]
    n = len(spans)
    return Columns(
        start_ns=spans[:, 0],
        end_ns=spans[:, 1],
        kind=np.zeros(n, dtype=np.int8),
        name=np.minimum(np.arange(n), len(comm)),
        stream=np.arange(n),  # threads may overlap; that is no finding
        comm=np.arange(n) < len(comm),
        names=names,
        streams=[("cpu", str(i)) for i in range(n)] if n else [],
        calls={i: Call(op=operation(a.name), op_source="annotation") for i, a in enumerate(comm)},
    )


def _overlaps(columns: Columns, sub_microsecond: bool) -> int:
    """How many device events start before the one before on their stream ends, by more than the resolution."""
    if len(columns.start_ns) < 2:
        return 0
    slack = 0 if sub_microsecond else 1000
    order = np.lexsort((columns.end_ns, columns.start_ns, columns.stream))
    stream, start, end = columns.stream[order], columns.start_ns[order], columns.end_ns[order]
    return int(((stream[1:] == stream[:-1]) & (start[1:] + slack < end[:-1])).sum())


def _calls(
    columns: Columns,
    sets: tuple[Intervals, Intervals, Intervals],
    recorded: Recorded,
    iterations: list[IterationParts],
    problems: Problems,
) -> Calls:
    rows = np.flatnonzero(columns.comm)
    rows = rows[np.lexsort((rows, columns.end_ns[rows], columns.start_ns[rows]))]
    calls = [columns.calls[int(row)] for row in rows]
    start, end = columns.start_ns[rows], columns.end_ns[rows]
    _by_gpu_annotation(calls, columns, rows, recorded.gpu_annotations)
    inferred = _by_order(calls, start, recorded.cpu_annotations)
    problems.add("annotation_op_inferred", inferred)
    problems.add("bytes_unknown", sum(c.bytes is None and c.op != "barrier" for c in calls))
    # An instant counts for the call that started first: what a call adds to the union of those before it.
    ends_before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    own_start = np.minimum(np.maximum(start, ends_before), np.maximum(end, start))
    exposed = subtract(sets[1], sets[0])
    shared = measure_before(exposed, np.maximum(end, own_start)) - measure_before(exposed, own_start)
    ops, groups = _numbers([c.op for c in calls]), _numbers([(c.group, c.members) for c in calls])
    after, before, kernels = _neighbours(columns, start, end)
    return Calls(
        start_ns=start.copy(),
        end_ns=end.copy(),
        op=ops[0],
        group=groups[0],
        group_size=_known(c.group_size for c in calls),
        bytes=_known(c.bytes for c in calls),
        sequence=_known(c.sequence for c in calls),
        exposed_ns=shared,
        iteration=_iteration_of(start, iterations),
        after=after,
        before=before,
        ops=ops[1],
        groups=[g for g, _ in groups[1]],
        members=[m for _, m in groups[1]],
        kernels=kernels,
        inferred=bool(inferred),
    )


def _known(values: Any) -> Int64:
    return np.array([-1 if v is None else v for v in values], dtype=np.int64)


def _numbers(values: list[Any]) -> tuple[Int64, list[Any]]:
    table: dict[Any, int] = {}
    return np.array([table.setdefault(v, len(table)) for v in values], dtype=np.int64), list(table)


def _iteration_of(start: Int64, iterations: list[IterationParts]) -> Int64:
    """The iteration whose window holds each start, the later one where windows overlap; -1 outside of all."""
    found = np.full(len(start), -1, dtype=np.int64)
    for number, iteration in enumerate(iterations):
        found[(start >= iteration.window.start_ns) & (start < iteration.window.end_ns)] = number
    return found


def _neighbours(columns: Columns, start: Int64, end: Int64) -> tuple[Int64, Int64, list[str]]:
    """For each call the compute kernel that started last before it and the one that starts next after its end."""
    rows = np.flatnonzero((columns.kind == KERNEL) & ~columns.comm)
    if len(rows) == 0 or len(start) == 0:
        return np.full(len(start), -1), np.full(len(start), -1), []
    rows = rows[np.argsort(columns.start_ns[rows], kind="stable")]
    begins = columns.start_ns[rows]
    last = np.searchsorted(begins, start, side="left") - 1
    following = np.searchsorted(begins, end, side="left")
    after = np.where(last >= 0, columns.name[rows[np.maximum(last, 0)]], -1)
    before = np.where(following < len(rows), columns.name[rows[np.minimum(following, len(rows) - 1)]], -1)
    used = [int(n) for n in np.unique(np.concatenate([after, before])) if n >= 0]
    renumber = {n: i for i, n in enumerate(used)}
    kernels = [columns.names[n] for n in used]
    return (
        np.array([renumber.get(int(n), -1) for n in after], dtype=np.int64),
        np.array([renumber.get(int(n), -1) for n in before], dtype=np.int64),
        kernels,
    )


def _vague(call: Call) -> bool:
    return call.op_source == "name" and call.op in (UNKNOWN, "send_recv")


def _by_gpu_annotation(calls: list[Call], columns: Columns, rows: Int64, annotations: list[Annotation]) -> None:
    """Takes the operation of a vague call from the communication annotation around it on its own stream."""
    around: dict[int, list[Annotation]] = {}
    for a in annotations:
        if operation(a.name) != UNKNOWN and ":" in a.name:
            around.setdefault(a.stream, []).append(a)
    starts = {s: np.array([a.start_ns for a in found], dtype=np.int64) for s, found in around.items()}
    for call, row in zip(calls, rows, strict=True):
        stream = int(columns.stream[row])
        if not _vague(call) or stream not in around:
            continue
        at = int(np.searchsorted(starts[stream], columns.start_ns[row], side="right")) - 1
        if at >= 0 and around[stream][at].end_ns >= columns.end_ns[row]:
            call.op, call.op_source = operation(around[stream][at].name), "annotation"


def _by_order(calls: list[Call], start: Int64, annotations: list[Annotation]) -> int:
    """Point-to-point kernels stand for all-to-alls, sends and coalesced calls alike; where the CPU annotated
    as many communications as there are calls, none of which starts before its annotation and all others of
    which agree, the annotations tell. Gives how many were told so."""
    if not any(_vague(c) for c in calls):
        return 0
    asked = [operation(a.name) for a in annotations if ":" in a.name and operation(a.name) != UNKNOWN]
    times = [a.start_ns for a in annotations if ":" in a.name and operation(a.name) != UNKNOWN]
    if len(asked) != len(calls) or any(t > s for t, s in zip(times, start, strict=True)):
        return 0
    pairwise = ("all_to_all", "send", "recv", "send_recv", "gather", "scatter")
    for call, op in zip(calls, asked, strict=True):
        if call.op != op and not (call.op == UNKNOWN or (call.op == "send_recv" and op in pairwise)):
            return 0
    told = 0
    for call, op in zip(calls, asked, strict=True):
        if _vague(call) and call.op != op:
            call.op, call.op_source = op, "annotation"
            told += 1
    return told
