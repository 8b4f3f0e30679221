"""One file's events that matter: device work, what launched it, annotations, communication with its arguments."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
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
from wirecost.trace.device_events import DeviceEvents
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.host_compute import HostCompute
from wirecost.trace.host_events import HostEvents
from wirecost.trace.lanes import LaneEvents
from wirecost.trace.numbers import NotANumber, OutOfRange, span_ns
from wirecost.trace.recorded import NONE, Annotation, Recorded
from wirecost.trace.stream import Slice
from wirecost.trace.times import Times
from wirecost.trace.typed import CATEGORY, Event, EventDecoder, Operator, Passed, Plain, RuntimeCall, Work

STEP = re.compile(r"ProfilerStep#\d{1,18}")
_STEP = "ProfilerStep#"
# Phases of the trace event format that are no complete events; without a category they are decoration
# (kineto's process names and window marks).
_PHASES = frozenset("BEXiICbnestfSTpFPNODMVvRc(),=")
_EMPTY = Event()
_MOST_ANNOTATIONS, _MOST_UNKNOWN = 1_000_000, 100


class Collector:
    """Takes slices of events, decoded by `decoder`, and keeps what matters. `keep_cpu` also keeps the operators
    of a CPU-only run."""

    def __init__(
        self,
        classifier: Classifier,
        diagnostics: DiagnosticCounts,
        decoder: EventDecoder,
        *,
        keep_cpu: bool = False,
    ) -> None:
        self._classifier, self._diagnostics, self._keep_cpu = classifier, diagnostics, keep_cpu
        self._decoder = decoder
        self._silent: set[str] = set()  # names of irrelevant operators
        self._times = Times(diagnostics)
        self._device = DeviceEvents(classifier, diagnostics, self._times)
        self.lanes = LaneEvents(diagnostics)
        self.phases: Counter[str] = Counter()  # of events without a category
        self.unknown: set[str] = set()  # categories that aren't known, the first few
        self.operators = 0  # events of the host's operators
        self._host = HostEvents(classifier, diagnostics, self._times, self._device.arguments)
        self._annotation_names: dict[bytes, str] = {}
        self._gpu: list[Annotation] = []
        self._cpu: list[Annotation] = []
        # Steps among the operators count only if no step is annotated, as in old traces.
        self._operator_steps: list[Annotation] = []
        self._steps_annotated = False
        self._cpu_ops = HostCompute()
        self._spans: list[tuple[int, int]] = []
        self._marks: dict[str, int] = {}
        self._decode_name = msgspec.json.Decoder(str).decode

    def add(self, slice_: Slice) -> None:
        """Takes a slice: events of known categories together, the others one by one."""
        groups: dict[type, list[Any]] = defaultdict(list)
        for event in slice_.events:
            groups[type(event)].append(event)
        for kind, events in groups.items():
            if issubclass(kind, Operator):
                self.operators += len(events)
                names = {e.name for e in events}
                if not names <= self._silent:
                    self._speaking(slice_, kind, names)
            elif issubclass(kind, RuntimeCall):
                if not self._host.runtime(events):
                    self._again(slice_, kind)
            elif issubclass(kind, Work):
                if not self._device.add(events, DEVICE_CATEGORIES[CATEGORY[kind]]):
                    self._again(slice_, kind)
            elif not issubclass(kind, Passed):
                for event in events:
                    self._one(event)

    def _speaking(self, slice_: Slice, kind: type, names: set[str]) -> None:
        """Takes the operators of a slice whose names are relevant; `names` are the names of all operators."""
        telling = set()
        for name in names - self._silent:
            if self._keep_cpu or self._host.communicates(name) or name.startswith(_STEP):
                telling.add(name)
            else:
                self._silent.add(name)
        if telling:
            rows = [n for n, e in enumerate(slice_.events) if type(e) is kind and e.name in telling]
            for event in self._decoder.again(slice_.text, rows):
                self._operator(event)

    def _again(self, slice_: Slice, kind: type) -> None:
        """Takes the events of one kind in a slice one by one, since one of them is unusual."""
        rows = [n for n, e in enumerate(slice_.events) if type(e) is kind]
        for event in self._decoder.again(slice_.text, rows):
            self._one(event)

    def _one(self, event: Plain) -> None:
        """Takes an event as it is, by its category."""
        category = event.cat
        if category in DEVICE_CATEGORIES:
            self._device.add_event(event, DEVICE_CATEGORIES[category])
        elif category in RUNTIME_CATEGORIES:
            self._host.call(event)
        elif category in OPERATORS:
            self.operators += 1
            self._operator(event)
        elif category not in OTHER_CATEGORIES:
            self._other(event)

    def _operator(self, event: Plain) -> None:
        """Takes a CPU operator: one that communicates, one that marks a step, or the computation of a CPU run."""
        self._host.operator(event)
        name = self._name_of(event)
        if name is None:
            return
        if name.startswith(_STEP):
            if not self._steps_annotated:
                self._annotation(event, self._operator_steps, NONE)
        elif self._keep_cpu and event.ph == "X":
            times = self._span(event)
            if times is not None:
                self._cpu_ops.add(name, *times, self._host.thread_of(event))

    def _span(self, event: Plain) -> tuple[int, int] | None:
        return self._times.span(bytes(event.ts), bytes(event.dur))

    def _name_of(self, event: Plain) -> str | None:
        raw = bytes(event.name)
        name = self._annotation_names.get(raw)
        if name is None:
            try:
                name = self._annotation_names[raw] = self._decode_name(raw)
            except (msgspec.MsgspecError, RecursionError):
                return None
        return name

    def _annotation(self, event: Plain, into: list[Annotation], stream: int) -> None:
        if event.ph != "X":
            self._diagnostics.add("unsupported_phase")
            return
        name = self._name_of(event)
        if name is None:
            self._diagnostics.add("unnamed_annotation")
            return
        times = self._span(event)
        if times is not None:
            thread = self._host.thread_of(event) if stream == NONE else NONE
            into.append(Annotation(name, *times, stream, thread))

    def _other(self, event: Plain) -> None:
        if event.cat == GPU_ANNOTATION:
            self._annotation(event, self._gpu, self._device.stream_of(event))
        elif event.cat == CPU_ANNOTATION:
            self._cpu_annotation(event)
        elif event.cat == "Trace":
            if event.ph == "X":
                times = self._span(event)
                if times is not None:
                    self._spans.append(times)
        elif event.cat is None or event.cat == "":
            self._bare(event)
        else:
            if len(self.unknown) < _MOST_UNKNOWN:
                self.unknown.add(event.cat[:40])
            if event.ph == "X":
                self._diagnostics.add("unknown_category", detail=f"for example {event.cat[:40]!r}")

    def _cpu_annotation(self, event: Plain) -> None:
        name = self._name_of(event)
        if name is None:
            self._diagnostics.add("unnamed_annotation")
            return
        if STEP.fullmatch(name):
            self._steps_annotated = True
        elif self._classifier.annotates(name):
            self._host.range(event, name, annotation=True)
        if len(self._cpu) < _MOST_ANNOTATIONS or STEP.fullmatch(name):
            self._annotation(event, self._cpu, NONE)

    def _bare(self, event: Plain) -> None:
        """Events without a category: kineto's metadata and the marks of the recorded window."""
        self.phases[event.ph or ""] += 1
        if event.ph == "X":
            self.lanes.add(event)
            return
        if event.ph == "M":
            self.lanes.name(event)
            return
        if event.ph is None and event == _EMPTY:
            return  # the trace viewer's exporter ends its list with one
        if event.ph not in _PHASES:
            self._diagnostics.add("event_without_category")
            return
        if event.ph in ("i", "I"):
            raw = bytes(event.name)
            if raw in (b'"Record Window End"', b'"Iteration Start: PyTorch Profiler"'):
                try:
                    start, _, _ = span_ns(bytes(event.ts), b"0")
                except (NotANumber, OutOfRange):
                    return
                self._marks.setdefault(raw.decode()[1:-1], start)

    def uncategorised(self) -> None:
        """Counts the events without a category, which are no known profiler's."""
        self._diagnostics.add("event_without_category", self.lanes.count)

    def finish(self, metadata: dict[str, Any]) -> Recorded:
        """Returns everything that was kept, as columns and in order."""
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
            cpu_ops=self._cpu_ops.spans(),
            metadata=metadata,
            sub_microsecond=self._times.fractions,
        )


def distinct(annotations: Iterable[Annotation]) -> list[Annotation]:
    """Returns annotations in order of start; an annotation that is there twice counts once."""
    unique = {(a.name, a.start_ns, a.end_ns, a.stream, a.thread): a for a in annotations}
    return sorted(unique.values(), key=lambda a: (a.start_ns, -a.end_ns, a.name))
