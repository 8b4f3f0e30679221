"""One file's events that matter, as columns: device work, annotations, communication with its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from wirecost.trace.arguments import Arguments
from wirecost.trace.classify import (
    COPY,
    CPU_ANNOTATION,
    DEVICE_CATEGORIES,
    FILL,
    GPU_ANNOTATION,
    KERNEL,
    OTHER_CATEGORIES,
    UNKNOWN,
    Classifier,
)
from wirecost.trace.numbers import LIMIT_NS, LONGEST_NS, NS_OF_FRACTION, NotANumber, OutOfRange, exact_ns, span_ns
from wirecost.trace.problems import Problems
from wirecost.trace.recorded import Annotation, Call, Columns, Int64, Recorded
from wirecost.trace.stream import Event, Slice

STEP = re.compile(r"ProfilerStep#\d{1,18}")
_STEP_BYTES = b'"ProfilerStep#'
_COMMS_BYTES = b'"record_param_comms"'
_OPERATORS = frozenset(("cpu_op", "Operator"))  # old profilers write their steps among these
_COMMS = msgspec.Raw(_COMMS_BYTES)
# Phases of the trace event format that are no complete events; without a category they are decoration
# (kineto's process names and window marks).
_PHASES = frozenset("BEXiICbnestfSTpFPNODMVvRc(),=")
_ANNOTATION = 3  # beside the kinds of device work
_MOST_LENGTHS = 100_000
_BY_KIND = [(kind, {c for c, k in DEVICE_CATEGORIES.items() if k == kind}) for kind in (KERNEL, COPY, FILL)]


class Collector:
    """Takes slices of events and keeps what matters. `keep_cpu` also keeps the operators of a CPU-only run,
    `wanted` CPU annotations of such names."""

    def __init__(
        self,
        classifier: Classifier,
        problems: Problems,
        *,
        keep_cpu: bool = False,
        wanted: re.Pattern[str] | None = None,
    ) -> None:
        self._wanted = wanted
        self._classifier, self._problems, self._keep_cpu = classifier, problems, keep_cpu
        # For each kind of device work, and for annotations, names as written -> index.
        self._names: tuple[dict[bytes, int], ...] = tuple({} for _ in range(4))
        self._texts: list[str] = []
        self._comm: list[bool] = []
        self._streams: dict[tuple[bytes, bytes], int] = {}
        # Device events in pieces of (start, end, kind, name, stream, communication, check) by events.
        self._pieces: list[Int64] = []
        self._count_taken = 0
        self._lengths: dict[bytes, int] = {}  # durations as written -> ns; the same few come again and again
        self._calls: dict[int, tuple[Call, object]] = {}
        self._by_external: dict[object, Call] = {}
        self._gpu: list[Annotation] = []
        self._cpu: list[Annotation] = []
        # Steps among the operators count only where no step is annotated, as in old traces.
        self._operator_steps: list[Annotation] = []
        self._steps_annotated = False
        self._cpu_ops: list[tuple[int, int]] = []
        self._spans: list[tuple[int, int]] = []
        self._marks: dict[str, int] = {}
        self._decode_name = msgspec.json.Decoder(str).decode
        self._arguments = Arguments(problems)
        self._fractions = False

    def add(self, slice_: Slice) -> None:
        events, text = slice_
        skipped = OTHER_CATEGORIES
        rest = [e for e in events if e.cat not in skipped]
        if self._keep_cpu:
            for event in events:
                if event.cat in skipped:
                    self._host(event)
        else:
            if _COMMS_BYTES in text:
                for event in [e for e in events if e.name == _COMMS]:
                    self._host(event)
            if not self._steps_annotated and b"#" in text and _STEP_BYTES in text:
                for event in [e for e in events if e.cat in skipped and bytes(e.name).startswith(_STEP_BYTES)]:
                    self._host(event)
        taken = 0
        for kind, categories in _BY_KIND:
            work = [e for e in rest if e.cat in categories]
            taken += len(work)
            if work and not self._batch(work, kind):
                for event in work:
                    self._device(event, kind)
        if taken < len(rest):
            for event in [e for e in rest if e.cat not in DEVICE_CATEGORIES]:
                self._other(event)

    def _batch(self, work: list[Event], kind: int) -> bool:
        """Takes device events of one kind together, by columns: several times faster than one by one.

        False, with nothing taken, where any of them is in the least unusual.
        """
        starts, lengths = [bytes(e.ts) for e in work], [bytes(e.dur) for e in work]
        digits = b"".join(starts) + b"".join(lengths)
        if b"-" in digits or [e.ph for e in work] != ["X"] * len(work):
            return False
        in_ns, known = NS_OF_FRACTION, self._lengths
        if len(known) > _MOST_LENGTHS:
            known.clear()
        try:
            start = np.array(
                [int(w) * 1000 + in_ns[f] for w, _, f in [t.partition(b".") for t in starts]], dtype=np.int64
            )
            for text in set(lengths).difference(known):
                whole, _, part = text.partition(b".")
                known[text] = int(whole) * 1000 + in_ns[part]
            length = np.array([known[t] for t in lengths], dtype=np.int64)
        except (ValueError, KeyError, OverflowError):
            return False
        if start.max() > LIMIT_NS - LONGEST_NS or length.max() > LONGEST_NS:
            return False
        table = self._names[kind]
        names = [table.get(n) for n in [bytes(e.name) for e in work]]
        if None in names:
            names = [self._name_of(e, kind) for e in work]
            if None in names:
                return False
        streams = [self._streams.get(k) for k in [(bytes(e.pid), bytes(e.tid)) for e in work]]
        if None in streams:
            streams = [self._stream_of(e) for e in work]
        piece = np.empty((7, len(work)), dtype=np.int64)
        columns: list[Any] = [start, start + length, kind, names, streams]
        for row, column in enumerate(columns):
            piece[row] = column
        piece[5] = [self._comm[n] for n in names]  # pyright: ignore[reportArgumentType, reportCallIssue]
        piece[6] = [hash(bytes(e.args)) for e in work]
        for row in np.flatnonzero(piece[5]):
            self._calls[self._count_taken + int(row)] = self._arguments.call(
                bytes(work[row].args), self._texts[piece[3, row]]
            )
        self._pieces.append(piece)
        self._count_taken += len(work)
        self._fractions = self._fractions or b"." in digits
        return True

    def _times(self, event: Event) -> tuple[int, int] | None:
        """(start_ns, end_ns); None, counted, where the event has no sound times."""
        ts, dur = bytes(event.ts), bytes(event.dur)
        try:
            start, end, exact = span_ns(ts, dur)
        except NotANumber:
            self._problems.add("bad_time")
            return None
        except OutOfRange:
            self._problems.add("out_of_range")
            return None
        self._fractions = self._fractions or start % 1000 != 0 or end % 1000 != 0
        if end < start or (dur.startswith(b"-") and exact_ns(dur) < 0):
            self._problems.add("negative_duration")
            return None
        if not exact:
            self._problems.add("sub_nanosecond")
        return start, end

    def _name_of(self, event: Event, kind: int = _ANNOTATION) -> int | None:
        raw = bytes(event.name)
        known = self._names[kind].get(raw)
        if known is not None:
            return known
        try:
            text = self._decode_name(raw)
        except (msgspec.MsgspecError, RecursionError):
            return None
        self._names[kind][raw] = number = len(self._texts)
        self._texts.append(text)
        self._comm.append(self._classifier.communicates(text, KERNEL if kind == _ANNOTATION else kind))
        return number

    def _stream_of(self, event: Event) -> int:
        key = (bytes(event.pid), bytes(event.tid))
        found = self._streams.get(key)
        if found is None:
            found = self._streams[key] = len(self._streams)
        return found

    def _device(self, event: Event, kind: int) -> None:
        if event.ph != "X":
            self._problems.add("unsupported_phase")
            return
        times = self._times(event)
        if times is None:
            return
        name = self._name_of(event, kind)
        if name is None:
            self._problems.add("unnamed_event")
            return
        comm = self._comm[name]
        if comm:
            self._calls[self._count_taken] = self._arguments.call(bytes(event.args), self._texts[name])
        row = [*times, kind, name, self._stream_of(event), comm, hash(bytes(event.args))]
        self._pieces.append(np.array(row, dtype=np.int64).reshape(7, 1))
        self._count_taken += 1

    def _host(self, event: Event) -> None:
        """Host events that matter whatever their category: profiler steps and descriptions of collectives."""
        raw = bytes(event.name)
        if raw == _COMMS_BYTES:
            found = self._arguments.description(bytes(event.args))
            if found is not None:
                self._by_external[found[0]] = found[1]
        elif raw.startswith(_STEP_BYTES) and event.cat in _OPERATORS:
            self._annotation(event, self._operator_steps, -1)
        elif self._keep_cpu and event.cat in _OPERATORS and event.ph == "X":
            times = self._times(event)
            if times is not None:
                self._cpu_ops.append(times)

    def _annotation(self, event: Event, into: list[Annotation], stream: int) -> None:
        if event.ph != "X":
            self._problems.add("unsupported_phase")
            return
        name = self._name_of(event)
        if name is None:
            self._problems.add("unnamed_annotation")
            return
        times = self._times(event)
        if times is not None:
            into.append(Annotation(self._texts[name], *times, stream))

    def _other(self, event: Event) -> None:
        if event.cat == GPU_ANNOTATION:
            self._annotation(event, self._gpu, self._stream_of(event))
        elif event.cat == CPU_ANNOTATION:
            name = self._name_of(event)
            if name is None:
                self._problems.add("unnamed_annotation")
            elif STEP.fullmatch(self._texts[name]):
                self._steps_annotated = True
                self._annotation(event, self._cpu, -1)
            elif self._comm[name] or (self._wanted is not None and self._wanted.search(self._texts[name])):
                self._annotation(event, self._cpu, -1)
        elif event.cat == "Trace":
            if event.ph == "X":
                times = self._times(event)
                if times is not None:
                    self._spans.append(times)
        elif event.cat is None or event.cat == "":
            self._bare(event)
        else:
            self._problems.add("unknown_category", detail=f"for example {event.cat[:40]!r}")

    def _bare(self, event: Event) -> None:
        """Events without a category: kineto's metadata and the marks of the recorded window."""
        if event.ph == "X" or event.ph not in _PHASES:
            self._problems.add("event_without_category")
            return
        if event.ph in ("i", "I"):
            raw = bytes(event.name)
            if raw in (b'"Record Window End"', b'"Iteration Start: PyTorch Profiler"'):
                try:
                    start, _, _ = span_ns(bytes(event.ts), b"0")
                except (NotANumber, OutOfRange):
                    return
                self._marks.setdefault(raw.decode()[1:-1], start)

    def finish(self, metadata: dict[str, Any]) -> Recorded:
        """The columns, with exact duplicates taken out and descriptions joined to their kernels."""
        for call, external in self._calls.values():
            described = (
                self._by_external.get(external) if call.op_source != "args" and external is not None else None
            )
            if described is not None:
                op, source = (described.op, "args") if described.op != UNKNOWN else (call.op, call.op_source)
                call.op, call.op_source = op, source
                call.group, call.members, call.group_size = (
                    described.group,
                    described.members,
                    described.group_size,
                )
                call.bytes, call.dtype, call.sequence = described.bytes, described.dtype, described.sequence
        taken = np.concatenate(self._pieces, axis=1) if self._pieces else np.empty((7, 0), dtype=np.int64)
        self._pieces.clear()
        start, end, kind, name, stream, comm, check = taken
        keep = ~_duplicates(start, end, name, stream, kind, check)
        self._problems.add("duplicate_event", int((~keep).sum()))
        rows = np.flatnonzero(keep)
        renumbered = np.cumsum(keep) - 1
        calls = {int(renumbered[row]): call for row, (call, _) in self._calls.items() if keep[row]}
        streams = [(_label(pid), _label(tid)) for pid, tid in self._streams]
        columns = Columns(
            start[rows],
            end[rows],
            kind[rows].astype(np.int8),
            name[rows],
            stream[rows],
            comm[rows].astype(np.bool_),
            self._texts,
            streams,
            calls,
        )
        self._problems.add("zero_duration", int((columns.start_ns == columns.end_ns).sum()))
        starts = [s for s, _ in self._spans] + [t for n, t in self._marks.items() if n.startswith("Iter")]
        ends = [e for _, e in self._spans] + [t for n, t in self._marks.items() if n.startswith("Record")]
        return Recorded(
            device=columns,
            gpu_annotations=_distinct(self._gpu),
            cpu_annotations=_distinct(self._cpu if self._steps_annotated else self._cpu + self._operator_steps),
            record_start_ns=min(starts, default=None),
            record_end_ns=max(ends, default=None),
            cpu_ops=self._cpu_ops,
            metadata=metadata,
            sub_microsecond=self._fractions,
        )


def _label(raw: bytes) -> str:
    """A process or thread id as text: `7`, `stream 7`."""
    text = raw.decode("utf-8", "replace")
    return text[1:-1] if text[:1] == '"' else text or "?"


def _duplicates(*columns: Int64) -> npt.NDArray[np.bool_]:
    """True for every row that equals an earlier one in all columns."""
    n = len(columns[0])
    order = np.lexsort((np.arange(n), *columns))
    same = np.ones(max(n - 1, 0), dtype=np.bool_)
    for column in columns:
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    found = np.zeros(n, dtype=np.bool_)
    found[order[1:]] = same
    return found


def _distinct(annotations: Iterable[Annotation]) -> list[Annotation]:
    """In order of start; an annotation that is there twice counts once."""
    unique = {(a.name, a.start_ns, a.end_ns, a.stream): a for a in annotations}
    return sorted(unique.values(), key=lambda a: (a.start_ns, -a.end_ns, a.name))
