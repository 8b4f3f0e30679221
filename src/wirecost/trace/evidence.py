"""Decides which device events are communication, and records the reason.

The evidence, in order of precedence, is: the user's patterns; arguments of a collective; the communication
annotation around the event on its own stream; the operator or annotation of the host that launched it; the kernel
family of its name. Fills, copies on one GPU and element-wise kernels that a collective launches in addition to its
transfer are not communication.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from wirecost.trace.batches import join_batches
from wirecost.trace.categories import COPY, FILL, KERNEL
from wirecost.trace.classify import Classifier
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.nesting import Nested
from wirecost.trace.operations import UNKNOWN, operation
from wirecost.trace.recorded import NONE, Annotation, Call, Columns, HostRange, Int64, Recorded, among

# Kineto widens annotations of the device by a microsecond (GpuUserAnnotation in CuptiActivityProfiler.cpp).
_SLACK_NS = 1000
_MOST_LAUNCHED = 4  # kernels that one call of a collective launches
_NAMED = 3  # how many names a diagnostic shows
_KINDS = {KERNEL: "kernel", COPY: "copy", FILL: "fill"}


class KernelUse(msgspec.Struct, frozen=True):
    """All events of one name, kind and class on a rank.

    `communicates` is whether they count as communication, and `why` is the reason.
    """

    name: str
    kind: str
    communicates: bool
    why: str
    count: int
    total_ns: int


class _Verdicts:
    """The verdict on each device event. `why` is the index of the reason, or -1 if there is no verdict yet."""

    def __init__(self, columns: Columns) -> None:
        self.why = np.full(len(columns.start_ns), NONE, dtype=np.int64)
        self.comm = np.zeros(len(columns.start_ns), dtype=np.bool_)
        self.reasons: list[str] = []
        self._known: dict[str, int] = {}

    def give(self, rows: Int64, reason: str, *, communicates: bool = True) -> None:
        """Sets the verdict of those rows that have none yet."""
        rows = rows[self.why[rows] == NONE]
        number = self._known.setdefault(reason, len(self._known))
        if number == len(self.reasons):
            self.reasons.append(reason)
        self.why[rows] = number
        self.comm[rows] = communicates


class _Names:
    """The classification by name alone, for each distinct pair of kind and name."""

    def __init__(self, columns: Columns, classifier: Classifier) -> None:
        self.columns = columns
        pairs = columns.name * 4 + columns.kind
        distinct = np.flatnonzero(np.bincount(pairs, minlength=1))
        numbers = np.zeros(4 * len(columns.names) + 4, dtype=np.int64)
        numbers[distinct] = np.arange(len(distinct))
        self.inverse = numbers[pairs]
        self.texts = [columns.names[int(p) // 4] for p in distinct]
        self.kinds = [int(p) % 4 for p in distinct]
        local, peers = [], []
        for text, kind in zip(self.texts, self.kinds, strict=True):
            local.append(kind == FILL or (kind == KERNEL and classifier.local(text)))
            peers.append(kind == COPY and classifier.copies_between_gpus(text))
        kernel = np.array([k == KERNEL for k in self.kinds], dtype=np.bool_)
        self.may_communicate = self._rows(
            kernel & ~np.array(local, dtype=np.bool_) | np.array(peers, dtype=np.bool_)
        )
        self.peer_copy = self._rows(np.array(peers, dtype=np.bool_))

    def _rows(self, flags: np.ndarray) -> np.ndarray:
        return flags[self.inverse] if len(flags) else np.zeros(0, dtype=np.bool_)

    def rows(self, number: int) -> Int64:
        return np.flatnonzero(self.inverse == number)


def decide(recorded: Recorded, classifier: Classifier, diagnostics: DiagnosticCounts) -> None:
    """Sets `comm`, `why`, `reasons` and `calls` of the device's columns."""
    columns = recorded.device
    verdicts, names = _Verdicts(columns), _Names(columns, classifier)
    for number, text in enumerate(names.texts):
        pattern = classifier.by_pattern(text)
        if pattern is not None:
            verdicts.give(names.rows(number), f"your pattern {pattern}")
    for row, name in columns.operators.items():
        if names.may_communicate[row]:
            verdicts.give(np.array([row]), f"operator: {name}")
    _by_arguments(columns, verdicts, names)
    _by_annotation(recorded, classifier, verdicts, names)
    _by_operator(recorded, verdicts, names)
    for number, (text, kind) in enumerate(zip(names.texts, names.kinds, strict=True)):
        family = classifier.family(text) if kind == KERNEL else None
        if family is not None:
            verdicts.give(names.rows(number), f"name: {family}")
    _the_rest(columns, classifier, verdicts, names, diagnostics)
    columns.comm, columns.why, columns.reasons = verdicts.comm, verdicts.why, verdicts.reasons
    columns.calls = {row: call for row, call in columns.calls.items() if verdicts.comm[row]}
    for row in np.flatnonzero(verdicts.comm):
        if int(row) not in columns.calls:
            columns.calls[int(row)] = Call(op=operation(columns.names[columns.name[row]]))
    _described_by_host(recorded)
    join_batches(recorded)
    _vague_by_reason(columns)
    _vague_by_launch(recorded)


def _by_arguments(columns: Columns, verdicts: _Verdicts, names: _Names) -> None:
    by_op: dict[str, list[int]] = defaultdict(list)
    for row, call in columns.calls.items():
        if call.op_source == "args" and names.may_communicate[row]:
            by_op[call.op].append(row)
    for op, rows in by_op.items():
        verdicts.give(np.array(rows, dtype=np.int64), f"arguments: {op}")


def _by_annotation(recorded: Recorded, classifier: Classifier, verdicts: _Verdicts, names: _Names) -> None:
    """Marks events that run inside a communication annotation of the device on the same stream."""
    columns = recorded.device
    around: dict[int, list[Annotation]] = defaultdict(list)
    for annotation in recorded.gpu_annotations:
        if classifier.annotates(annotation.name):
            around[annotation.stream].append(annotation)
    for stream, listed in around.items():
        rows = np.flatnonzero((columns.stream == stream) & names.may_communicate)
        rows = rows[np.argsort(columns.start_ns[rows], kind="stable")]
        starts = columns.start_ns[rows]
        for annotation in listed:
            lo = int(np.searchsorted(starts, annotation.start_ns - _SLACK_NS, side="left"))
            hi = int(np.searchsorted(starts, annotation.end_ns, side="right"))
            inside = rows[lo:hi]
            inside = inside[columns.end_ns[inside] <= annotation.end_ns + _SLACK_NS]
            verdicts.give(inside, f"annotation: {annotation.name}")


def _by_operator(recorded: Recorded, verdicts: _Verdicts, names: _Names) -> None:
    """Marks events that a communication operator or annotation of the host launched directly.

    Among the events launched by operators inside it, only copies between GPUs are marked.
    """
    columns, ranges = recorded.device, recorded.host_ranges
    if not ranges:
        return
    launch = recorded.launch
    own = {r.external: r.name for r in ranges if r.external != NONE and not r.lasting}
    if own:
        ids = np.array(sorted(own), dtype=np.int64)
        for row in np.flatnonzero(among(columns.external, ids) & names.may_communicate):
            verdicts.give(np.array([row]), f"operator: {own[int(columns.external[row])]}")
    inside = Nested([r for r in ranges if not r.lasting])
    open_rows = (verdicts.why == NONE) & names.may_communicate & (launch >= 0)
    unclear = names.peer_copy | (columns.external == NONE)
    launched: dict[int, list[int]] = defaultdict(list)
    around: dict[int, HostRange] = {}
    for row in np.flatnonzero(open_rows & unclear):
        call = int(launch[row])
        innermost = inside.innermost(int(recorded.launches.thread[call]), int(recorded.launches.start_ns[call]))
        if innermost is not None and (names.peer_copy[row] or innermost.annotation):
            around[id(innermost)] = innermost
            launched[id(innermost)].append(int(row))
    for key, rows in launched.items():
        if len(rows) <= _MOST_LAUNCHED or names.peer_copy[rows].all():
            verdicts.give(np.array(rows, dtype=np.int64), f"operator: {around[key].name}")


def _the_rest(
    columns: Columns, classifier: Classifier, verdicts: _Verdicts, names: _Names, diagnostics: DiagnosticCounts
) -> None:
    """Marks the remaining events as no communication, and reports names that nevertheless look like it."""
    suspects: list[tuple[int, str, int]] = []
    for number, (text, kind) in enumerate(zip(names.texts, names.kinds, strict=True)):
        rows = names.rows(number)
        rows = rows[verdicts.why[rows] == NONE]
        if len(rows) == 0:
            continue
        if kind == KERNEL and classifier.looks_like_communication(text):
            reason = "the name looks like communication, without other evidence"
        elif kind == COPY and classifier.copies_between_gpus(text):
            reason = "a copy between GPUs outside any collective"
        else:
            verdicts.give(rows, "no sign of communication", communicates=False)
            continue
        verdicts.give(rows, reason, communicates=False)
        suspects.append((-int((columns.end_ns[rows] - columns.start_ns[rows]).sum()), text, len(rows)))
    suspects.sort()
    detail = "; ".join(f"{count} x {text[:80]}, {-total / 1e6:.3f} ms" for total, text, count in suspects[:_NAMED])
    more = len(suspects) - _NAMED
    diagnostics.add(
        "looks_like_communication",
        sum(count for _, _, count in suspects),
        detail=detail + (f"; and {more} more names" if more > 0 else ""),
    )


def _described_by_host(recorded: Recorded) -> None:
    """Completes calls without arguments of their own from the host's description of the collective."""
    columns = recorded.device
    described = [r for r in recorded.host_ranges if r.call is not None]
    if not described:
        return
    by_external = {r.external: r.call for r in described if r.external != NONE}
    inside, launch = Nested(described), recorded.launch
    for row, call in columns.calls.items():
        if call.op_source == "args":
            continue
        description = by_external.get(int(columns.external[row])) if columns.external[row] != NONE else None
        if description is None and launch[row] >= 0:
            at = int(launch[row])
            around = inside.innermost(int(recorded.launches.thread[at]), int(recorded.launches.start_ns[at]))
            description = around.call if around is not None else None
        if description is None:
            continue
        if description.op != UNKNOWN:
            call.op, call.op_source = description.op, "args"
        call.group, call.members, call.group_size = description.group, description.members, description.group_size
        call.bytes, call.dtype, call.sequence = description.bytes, description.dtype, description.sequence
        call.peers = description.peers


def _vague_by_reason(columns: Columns) -> None:
    """Takes the operation of a call with an unclear name from the annotation or operator that is its reason."""
    for row, call in columns.calls.items():
        reason = columns.reasons[columns.why[row]]
        if call.op == UNKNOWN and call.op_source == "name" and reason.startswith(("annotation: ", "operator: ")):
            op = operation(reason.split(": ", 1)[1])
            if op != UNKNOWN:
                call.op, call.op_source = op, "annotation"


def _vague_by_launch(recorded: Recorded) -> None:
    """Takes the operation of a call with an unclear name from the host annotation that launched it.

    A point-to-point kernel, for example, can stand for several operations.
    """
    inside, launch = Nested([r for r in recorded.host_ranges if r.annotation and not r.lasting]), recorded.launch
    for row, call in recorded.device.calls.items():
        if is_vague(call) and launch[row] >= 0:
            at = int(launch[row])
            around = inside.innermost(int(recorded.launches.thread[at]), int(recorded.launches.start_ns[at]))
            op = operation(around.name) if around is not None else UNKNOWN
            if op != UNKNOWN:
                call.op, call.op_source = op, "annotation"


def is_vague(call: Call) -> bool:
    """Returns whether a call's operation is known from the kernel's name only, and not exactly."""
    return call.op_source == "name" and call.op in (UNKNOWN, "send_recv")


def kernel_uses(columns: Columns) -> list[KernelUse]:
    """Returns every name with its class and the reason, the longest in total first."""
    if len(columns.start_ns) == 0:
        return []
    key = ((columns.name * 4 + columns.kind) * 2 + columns.comm) * (len(columns.reasons) + 1) + columns.why + 1
    _, first, inverse, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    total = np.zeros(len(first), dtype=np.int64)
    np.add.at(total, inverse, columns.end_ns - columns.start_ns)
    uses = []
    for row, n, t in zip(first, count, total, strict=True):
        why = int(columns.why[row])
        uses.append(
            KernelUse(
                columns.names[int(columns.name[row])],
                _KINDS[int(columns.kind[row])],
                bool(columns.comm[row]),
                columns.reasons[why] if why >= 0 else "no sign of communication",
                int(n),
                int(t),
            )
        )
    return sorted(uses, key=lambda u: (-u.total_ns, u.name, u.why))
