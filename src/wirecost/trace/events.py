"""One file's events that matter: device work, what launched it, annotations, communication with its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from wirecost.trace.categories import (
    CPU_ANNOTATION,
    DEVICE_CATEGORIES,
    GPU_ANNOTATION,
    OPERATORS,
    OTHER_CATEGORIES,
    RUNTIME_CATEGORIES,
)
from wirecost.trace.classify import Classifier
from wirecost.trace.device_events import BY_KIND, DeviceEvents, Times
from wirecost.trace.host_events import HostEvents
from wirecost.trace.numbers import NotANumber, OutOfRange, span_ns
from wirecost.trace.problems import Problems
from wirecost.trace.recorded import NONE, Annotation, Recorded
from wirecost.trace.stream import Event, Slice

STEP = re.compile(r"ProfilerStep#\d{1,18}")
_STEP_BYTES = b'"ProfilerStep#'
# Phases of the trace event format that are no complete events; without a category they are decoration
# (kineto's process names and window marks).
_PHASES = frozenset("BEXiICbnestfSTpFPNODMVvRc(),=")
# What a profiler writes around a host call of its own; no iteration is called so.
_MOST_ANNOTATIONS = 1_000_000


class Collector:
    """Takes slices of events and keeps what matters. `keep_cpu` also keeps the operators of a CPU-only run."""

    def __init__(self, classifier: Classifier, problems: Problems, *, keep_cpu: bool = False) -> None:
        self._classifier, self._problems, self._keep_cpu = classifier, problems, keep_cpu
        self._times = Times(problems)
        self._device = DeviceEvents(classifier, problems, self._times)
        self._host = HostEvents(classifier, problems, self._times, self._device.arguments)
        self._annotation_names: dict[bytes, str] = {}
        self._gpu: list[Annotation] = []
        self._cpu: list[Annotation] = []
        # Steps among the operators count only where no step is annotated, as in old traces.
        self._operator_steps: list[Annotation] = []
        self._steps_annotated = False
        self._cpu_ops: list[tuple[int, int]] = []
        self._spans: list[tuple[int, int]] = []
        self._marks: dict[str, int] = {}
        self._decode_name = msgspec.json.Decoder(str).decode

    def add(self, slice_: Slice) -> None:
        events, text = slice_
        skipped = OTHER_CATEGORIES
        rest = [e for e in events if e.cat not in skipped]
        operators = [e for e in events if e.cat in OPERATORS]
        if operators:
            self._host.operators(operators)
            self._operators(operators, text)
        runtime = [e for e in events if e.cat in RUNTIME_CATEGORIES]
        if runtime:
            self._host.runtime(runtime)
        taken = 0
        for kind, categories in BY_KIND:
            work = [e for e in rest if e.cat in categories]
            taken += len(work)
            if work:
                self._device.add(work, kind)
        if taken < len(rest):
            for event in [e for e in rest if e.cat not in DEVICE_CATEGORIES]:
                self._other(event)

    def _operators(self, operators: list[Event], text: bytes) -> None:
        """Steps among the operators, and the operators of a run on CPUs."""
        if not self._steps_annotated and b"#" in text and _STEP_BYTES in text:
            for event in operators:
                if bytes(event.name).startswith(_STEP_BYTES):
                    self._annotation(event, self._operator_steps, NONE)
        if self._keep_cpu:
            for event in operators:
                if event.ph == "X" and self._computes(bytes(event.name)):
                    times = self._times.one(event)
                    if times is not None:
                        self._cpu_ops.append(times)

    def _computes(self, name: bytes) -> bool:
        """Whether an operator of a run on CPUs is work of its own: no step, and no call of a collective."""
        return not name.startswith(_STEP_BYTES) and not self._host.communicates(name)

    def _name_of(self, event: Event) -> str | None:
        raw = bytes(event.name)
        name = self._annotation_names.get(raw)
        if name is None:
            try:
                name = self._annotation_names[raw] = self._decode_name(raw)
            except (msgspec.MsgspecError, RecursionError):
                return None
        return name

    def _annotation(self, event: Event, into: list[Annotation], stream: int) -> None:
        if event.ph != "X":
            self._problems.add("unsupported_phase")
            return
        name = self._name_of(event)
        if name is None:
            self._problems.add("unnamed_annotation")
            return
        times = self._times.one(event)
        if times is not None:
            thread = self._host.thread_of(event) if stream == NONE else NONE
            into.append(Annotation(name, *times, stream, thread))

    def _other(self, event: Event) -> None:
        if event.cat == GPU_ANNOTATION:
            self._annotation(event, self._gpu, self._device.stream_of(event))
        elif event.cat == CPU_ANNOTATION:
            self._cpu_annotation(event)
        elif event.cat == "Trace":
            if event.ph == "X":
                times = self._times.one(event)
                if times is not None:
                    self._spans.append(times)
        elif event.cat is None or event.cat == "":
            self._bare(event)
        elif event.ph == "X":
            self._problems.add("unknown_category", detail=f"for example {event.cat[:40]!r}")

    def _cpu_annotation(self, event: Event) -> None:
        name = self._name_of(event)
        if name is None:
            self._problems.add("unnamed_annotation")
            return
        if STEP.fullmatch(name):
            self._steps_annotated = True
        elif self._classifier.annotates(name):
            self._host.range(event, name, annotation=True)
        if len(self._cpu) < _MOST_ANNOTATIONS or STEP.fullmatch(name):
            self._annotation(event, self._cpu, NONE)

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
        """Everything that was kept, as columns and in order."""
        columns = self._device.columns()
        starts = [s for s, _ in self._spans] + [t for n, t in self._marks.items() if n.startswith("Iter")]
        ends = [e for _, e in self._spans] + [t for n, t in self._marks.items() if n.startswith("Record")]
        return Recorded(
            device=columns,
            gpu_annotations=distinct(self._gpu),
            cpu_annotations=distinct(self._cpu if self._steps_annotated else self._cpu + self._operator_steps),
            host_ranges=self._host.ranges,
            launches=self._host.launches(),
            record_start_ns=min(starts, default=None),
            record_end_ns=max(ends, default=None),
            cpu_ops=self._cpu_ops,
            metadata=metadata,
            sub_microsecond=self._times.fractions,
        )


def distinct(annotations: Iterable[Annotation]) -> list[Annotation]:
    """In order of start; an annotation that is there twice counts once."""
    unique = {(a.name, a.start_ns, a.end_ns, a.stream): a for a in annotations}
    return sorted(unique.values(), key=lambda a: (a.start_ns, -a.end_ns, a.name))
