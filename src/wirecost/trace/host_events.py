"""Host events of one file that matter: calls that launch device work, and operators that communicate."""

from __future__ import annotations

import re
from array import array

import msgspec
import numpy as np

from wirecost.trace.arguments import Arguments
from wirecost.trace.classify import Classifier
from wirecost.trace.device_events import correlation_of, external_of, identifier, label
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.recorded import NONE, Annotation, Call, HostRange, Launches
from wirecost.trace.times import TimeColumns, Times, column
from wirecost.trace.typed import Id, Plain, RuntimeCall

COMMS = "record_param_comms"
# Calls that ask for properties and states; they launch, order and wait for nothing (CUDA, HIP, SYCL, Level Zero).
_QUERIES = re.compile(
    r"attribute|occupancy|iscapturing|captureinfo|propert|getdevice|setdevice|getlasterror|peekatlast|geterror"
    r"|capturemode|getfunc|getpriority|priorityrange|eventquery|streamquery|getmodule|getctx|ctxget|ctxset|getgraph",
    re.IGNORECASE,
)
_SKIPPED = -2


class HostEvents:
    """Takes host events; `launches` and `ranges` give what matters of them."""

    def __init__(
        self, classifier: Classifier, diagnostics: DiagnosticCounts, times: Times, arguments: Arguments
    ) -> None:
        self._classifier, self._diagnostics = classifier, diagnostics
        self._times, self._arguments = times, arguments
        # Faults of host calls don't affect the answer, so they aren't reported.
        self._quiet = Times(DiagnosticCounts())
        self._threads: dict[tuple[Id, Id], int] = {}
        self._calls: dict[str, int] = {}  # names of runtime calls -> index, or _SKIPPED
        self._call_names: list[str] = []
        self._operators: dict[str, bool] = {}  # names of operators -> whether they communicate
        self._spans = TimeColumns(self._quiet)
        self._name, self._thread, self._correlation = array("i"), array("i"), array("q")
        self.ranges: list[HostRange] = []
        self._decode_name = msgspec.json.Decoder(str).decode

    def thread_of(self, event: Plain) -> int:
        """Returns the index of the host thread on whose row an event stands."""
        key = identifier(bytes(event.pid)), identifier(bytes(event.tid))
        return self._threads.setdefault(key, len(self._threads))

    def runtime(self, events: list[RuntimeCall]) -> bool:
        """Takes calls of the device's runtime together; False, with nothing taken, where any of them is
        unusual."""
        known, threads = self._calls, self._threads
        names = [known.get(e.name, NONE) for e in events]
        if NONE in names:
            names = [self._call_of(e.name) for e in events]
        if _SKIPPED in names:
            events = [e for e, name in zip(events, names, strict=True) if name != _SKIPPED]
            names = [name for name in names if name != _SKIPPED]
        if not events:
            return True
        if not self._spans.texts([e.ts for e in events], [e.dur for e in events]):
            return False
        rows = [threads.get((e.pid, e.tid), NONE) for e in events]
        if NONE in rows:
            rows = [threads.setdefault((e.pid, e.tid), len(threads)) for e in events]
        self._name.fromlist(names)
        self._thread.fromlist(rows)
        self._correlation.fromlist([e.args.correlation for e in events])
        return True

    def call(self, event: Plain) -> None:
        """Takes a call of the runtime that is unusual in some way."""
        name = self._call_of(self._text(event))
        span = self._span(event)
        if name != _SKIPPED and span is not None:
            self._spans.span(*span)
            self._name.append(name)
            self._thread.append(self.thread_of(event))
            self._correlation.append(correlation_of(bytes(event.args)))

    def _span(self, event: Plain) -> tuple[int, int] | None:
        return self._quiet.span(bytes(event.ts), bytes(event.dur)) if event.ph == "X" else None

    def _text(self, event: Plain) -> str:
        try:
            return self._decode_name(bytes(event.name))
        except (msgspec.MsgspecError, RecursionError):
            return ""

    def _call_of(self, text: str) -> int:
        known = self._calls.get(text)
        if known is not None:
            return known
        if _QUERIES.search(text):
            self._calls[text] = _SKIPPED
        else:
            self._calls[text] = len(self._call_names)
            self._call_names.append(text)
        return self._calls[text]

    def operator(self, event: Plain) -> None:
        """Takes an operator, if it communicates."""
        name = self._text(event)
        if self.communicates(name):
            call: Call | None = None
            arguments = bytes(event.args)
            if name == COMMS and arguments:
                call = self._arguments.description(arguments)
            waits = call is not None and call.waits
            self.range(event, name, annotation=False, call=None if waits else call, waits=waits)

    def communicates(self, name: str) -> bool:
        """Returns whether an operator's name is of one that communicates."""
        known = self._operators.get(name)
        if known is None:
            self._operators[name] = known = self._classifier.operator(name)
        return known

    def range(
        self, event: Plain, name: str, *, annotation: bool, call: Call | None = None, waits: bool = False
    ) -> None:
        """Takes an operator or annotation that communicates."""
        span = self._span(event)
        if span is None:
            return
        lasting = annotation and not self._classifier.annotates_call(name)
        external = external_of(bytes(event.args))
        self.ranges.append(
            HostRange(name, *span, self.thread_of(event), external, annotation, call, waits, lasting)
        )

    def launches(self) -> Launches:
        """Returns all calls that matter, in order of their start."""
        start, end = self._spans.finish()
        columns = [start, end, *(column(a) for a in (self._correlation, self._name, self._thread))]
        if self._spans.unsound:
            columns = [np.delete(c, self._spans.unsound) for c in columns]
        if (np.diff(columns[0]) <= 0).any():
            order = np.lexsort((-columns[1], columns[0]))
            columns = [c[order] for c in columns]
        start, end, correlation, name, thread = columns
        threads = [(label(pid), label(tid)) for pid, tid in self._threads]
        return Launches(start, end, correlation, name, thread, self._call_names, threads)


__all__ = ["COMMS", "NONE", "Annotation", "HostEvents"]
