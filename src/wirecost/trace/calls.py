"""The communication calls of a rank, with their operation, exposed time and surrounding kernels."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from wirecost.breakdown import Parts
from wirecost.breakdown.intervals import Intervals, measure_before, subtract
from wirecost.trace.categories import KERNEL
from wirecost.trace.causes import find_causes
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.evidence import is_vague
from wirecost.trace.operations import UNKNOWN, operation
from wirecost.trace.recorded import Annotation, Call, Columns, HostRange, Int64, Recorded
from wirecost.trace.situation import find_situation
from wirecost.trace.spans import Spans
from wirecost.trace.window import Window


class IterationParts(msgspec.Struct):
    window: Window
    parts: Parts


class Calls(msgspec.Struct):
    """The communication calls of a rank in order of start: int64 columns of equal length; -1 is unknown.

    `exposed_ns` distributes the exposed communication over the calls. If calls overlap, an instant counts for the
    one that started first, so the column sums to the exposed communication. `iteration` indexes the rank's
    iterations, and `op`, `group`, `after` and `before` index their lists of names.
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
    members: list[str]  # of each group, as the trace writes them; empty if it writes none
    kernels: list[str]
    stream: Int64
    own_start_ns: Int64  # the time from which exposed instants belong to the call, not to an earlier one
    exposed: Spans  # when communication runs and compute doesn't
    cause: Int64  # index into `causes.CODES`, -1 where nothing is exposed; waits for other ranks aside
    host_call: Int64  # the call that delayed the launch: index into `host_calls`, -1 if none is known
    host_calls: list[str]
    peers: dict[
        int, list[tuple[int, int]]
    ] = {}  # by row, the messages of a send or receive: (source, destination)
    inferred: bool = False  # operations by the order of the CPU annotations

    def __len__(self) -> int:
        return len(self.start_ns)


def build_calls(
    columns: Columns,
    sets: tuple[Intervals, Intervals, Intervals],
    recorded: Recorded,
    iterations: list[IterationParts],
    diagnostics: DiagnosticCounts,
    *,
    on_host: bool = False,
) -> Calls:
    """Returns the communication of a rank, in order of start. `on_host`: the time line is the host's own."""
    rows = np.flatnonzero(columns.comm)
    rows = rows[np.lexsort((rows, columns.end_ns[rows], columns.start_ns[rows]))]
    calls = [columns.calls[int(row)] for row in rows]
    start, end = columns.start_ns[rows], columns.end_ns[rows]
    _by_gpu_annotation(calls, columns, rows, recorded.gpu_annotations)
    inferred = _by_order(calls, start, [r for r in recorded.host_ranges if r.annotation])
    diagnostics.add("annotation_op_inferred", inferred)
    diagnostics.add("bytes_unknown", sum(c.bytes is None and c.op != "barrier" for c in calls))
    # An instant counts for the call that started first. So a call gets what it adds to the union of earlier calls.
    ends_before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    own_start = np.minimum(np.maximum(start, ends_before), np.maximum(end, start))
    exposed = subtract(sets[1], sets[0])
    shared = measure_before(exposed, np.maximum(end, own_start)) - measure_before(exposed, own_start)
    ops, groups = _numbers([c.op for c in calls]), _numbers([(c.group, c.members) for c in calls])
    after, before, kernels = _neighbours(columns, start, end)
    iteration = _iteration_of(start, iterations)
    situation = find_situation(columns, recorded, rows, sets[0], exposed, (own_start, shared))
    kinds = ops[0] * (int(groups[0].max(initial=0)) + 1) + groups[0]
    causes = find_causes(situation, kinds, iteration, recorded, on_host=on_host)
    return Calls(
        start_ns=start.copy(),
        end_ns=end.copy(),
        op=ops[0],
        group=groups[0],
        group_size=_known(c.group_size for c in calls),
        bytes=_known(c.bytes for c in calls),
        sequence=_known(c.sequence for c in calls),
        exposed_ns=shared,
        iteration=iteration,
        cause=causes.cause,
        host_call=causes.host_call,
        host_calls=causes.host_calls,
        after=after,
        before=before,
        ops=ops[1],
        groups=[g for g, _ in groups[1]],
        members=[m for _, m in groups[1]],
        kernels=kernels,
        stream=columns.stream[rows],
        own_start_ns=own_start,
        exposed=Spans.of(exposed),
        peers={number: list(call.peers) for number, call in enumerate(calls) if call.peers},
        inferred=bool(inferred),
    )


def _known(values: Any) -> Int64:
    return np.array([-1 if v is None else v for v in values], dtype=np.int64)


def _numbers(values: list[Any]) -> tuple[Int64, list[Any]]:
    table: dict[Any, int] = {}
    return np.array([table.setdefault(v, len(table)) for v in values], dtype=np.int64), list(table)


def _iteration_of(start: Int64, iterations: list[IterationParts]) -> Int64:
    """Returns the index of the iteration whose window holds each start; -1 if none does, the later if windows
    overlap.
    """
    iteration_numbers = np.full(len(start), -1, dtype=np.int64)
    for number, iteration in enumerate(iterations):
        iteration_numbers[(start >= iteration.window.start_ns) & (start < iteration.window.end_ns)] = number
    return iteration_numbers


def _neighbours(columns: Columns, start: Int64, end: Int64) -> tuple[Int64, Int64, list[str]]:
    """Returns for each call the compute kernel that started last before it and the one that starts next after its
    end."""
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


def _by_gpu_annotation(calls: list[Call], columns: Columns, rows: Int64, annotations: list[Annotation]) -> None:
    """Takes the operation of a vague call from the communication annotation around it on its own stream."""
    around: dict[int, list[Annotation]] = {}
    for a in annotations:
        if operation(a.name) != UNKNOWN and ":" in a.name:
            around.setdefault(a.stream, []).append(a)
    starts = {s: np.array([a.start_ns for a in listed], dtype=np.int64) for s, listed in around.items()}
    for call, row in zip(calls, rows, strict=True):
        stream = int(columns.stream[row])
        if not is_vague(call) or stream not in around:
            continue
        at = int(np.searchsorted(starts[stream], columns.start_ns[row], side="right")) - 1
        if at >= 0 and around[stream][at].end_ns >= columns.end_ns[row]:
            call.op, call.op_source = operation(around[stream][at].name), "annotation"


def _by_order(calls: list[Call], start: Int64, annotations: list[HostRange]) -> int:
    """Infers the operations of unclear calls from the host's annotations by order. Returns the number inferred.

    Point-to-point kernels can stand for an all-to-all, a send or a coalesced call. The annotations are used only
    if there are as many of them as calls, no call starts before its annotation, and all clear calls agree with
    theirs.
    """
    if not any(is_vague(c) for c in calls):
        return 0
    annotations = sorted(annotations, key=lambda a: (a.start_ns, -a.end_ns, a.name))
    annotated = [operation(a.name) for a in annotations if operation(a.name) != UNKNOWN]
    times = [a.start_ns for a in annotations if operation(a.name) != UNKNOWN]
    if len(annotated) != len(calls) or any(t > s for t, s in zip(times, start, strict=True)):
        return 0
    pairwise = ("all_to_all", "send", "recv", "send_recv", "gather", "scatter")
    for call, op in zip(calls, annotated, strict=True):
        if call.op != op and not (call.op == UNKNOWN or (call.op == "send_recv" and op in pairwise)):
            return 0
    inferred = 0
    for call, op in zip(calls, annotated, strict=True):
        if is_vague(call) and call.op != op:
            call.op, call.op_source = op, "annotation"
            inferred += 1
    return inferred
