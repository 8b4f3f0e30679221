"""Host events of one file that matter: calls that launch device work, and operators that communicate."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from wirecost.trace.arguments import Arguments
from wirecost.trace.classify import Classifier
from wirecost.trace.device_events import Times, correlations, external_ids, label
from wirecost.trace.problems import Problems
from wirecost.trace.recorded import NONE, Annotation, Call, HostRange, Int64, Launches
from wirecost.trace.stream import Event

COMMS = "record_param_comms"
# Calls that ask for properties and states; they launch, order and wait for nothing (CUDA, HIP, SYCL, Level Zero).
_QUERIES = re.compile(
    r"attribute|occupancy|iscapturing|captureinfo|propert|getdevice|setdevice|getlasterror|peekatlast|geterror"
    r"|capturemode|getfunc|getpriority|priorityrange|eventquery|streamquery|getmodule|getctx|ctxget|ctxset|getgraph",
    re.IGNORECASE,
)
# start, end, correlation, name, thread
_WIDTH = 5
_SKIPPED = -2


class HostEvents:
    """Takes host events; `launches` and `ranges` give what matters of them."""

    def __init__(self, classifier: Classifier, problems: Problems, times: Times, arguments: Arguments) -> None:
        self._classifier, self._problems, self._times, self._arguments = classifier, problems, times, arguments
        self._threads: dict[tuple[bytes, bytes], int] = {}
        self._calls: dict[bytes, int] = {}  # names of runtime calls as written -> index, or _SKIPPED
        self._call_names: list[str] = []
        self._operators: dict[bytes, str | None] = {}  # names of operators as written -> name, if it communicates
        self._pieces: list[Int64] = []
        self.ranges: list[HostRange] = []
        self._decode_name = msgspec.json.Decoder(str).decode

    def thread_of(self, event: Event) -> int:
        """The index of the host thread on whose row an event stands."""
        return self._threads.setdefault((bytes(event.pid), bytes(event.tid)), len(self._threads))

    def runtime(self, events: list[Event]) -> None:
        """Takes calls of the device's runtime."""
        known = self._calls
        kept: list[Event] = []
        names: list[int] = []
        for event in events:
            raw = bytes(event.name)
            name = known.get(raw)
            if name is None:
                name = self._call_of(raw)
            if name != _SKIPPED:
                kept.append(event)
                names.append(name)
        if not kept:
            return
        times = self._times.many(kept)
        if times is None:
            single = [(e, n, t) for e, n in zip(kept, names, strict=True) if (t := self._single(e)) is not None]
            kept, names = [e for e, _, _ in single], [n for _, n, _ in single]
            times = (
                np.array([t[0] for _, _, t in single], dtype=np.int64),
                np.array([t[1] for _, _, t in single], dtype=np.int64),
            )
        piece = np.empty((_WIDTH, len(kept)), dtype=np.int64)
        arguments = [bytes(e.args) for e in kept]
        columns: list[Any] = [*times, correlations(arguments), names, [self.thread_of(e) for e in kept]]
        for row, column in enumerate(columns):
            piece[row] = column
        self._pieces.append(piece)

    def _single(self, event: Event) -> tuple[int, int] | None:
        """Times of a call that is unusual; what is unsound about a host call costs the answer nothing."""
        if event.ph != "X":
            return None
        quiet = Times(Problems())
        return quiet.one(event)

    def _call_of(self, raw: bytes) -> int:
        try:
            text = self._decode_name(raw)
        except (msgspec.MsgspecError, RecursionError):
            text = ""
        if _QUERIES.search(text):
            self._calls[raw] = _SKIPPED
        else:
            self._calls[raw] = len(self._call_names)
            self._call_names.append(text)
        return self._calls[raw]

    def operators(self, events: list[Event]) -> None:
        """Takes the operators that communicate."""
        known = self._operators
        for event in events:
            raw = bytes(event.name)
            name = known.get(raw, "")
            if name == "":
                name = self._operator_of(raw)
            if name is not None:
                call: Call | None = None
                arguments = bytes(event.args)
                if name == COMMS and arguments:
                    call = self._arguments.description(arguments)
                waits = call is not None and call.waits
                self.range(event, name, annotation=False, call=None if waits else call, waits=waits)

    def communicates(self, name: bytes) -> bool:
        """Whether an operator's name, as written, is of one that communicates."""
        known = self._operators.get(name, "")
        return (self._operator_of(name) if known == "" else known) is not None

    def _operator_of(self, raw: bytes) -> str | None:
        try:
            text = self._decode_name(raw)
        except (msgspec.MsgspecError, RecursionError):
            text = ""
        self._operators[raw] = name = text if self._classifier.operator(text) else None
        return name

    def range(
        self, event: Event, name: str, *, annotation: bool, call: Call | None = None, waits: bool = False
    ) -> None:
        """Takes an operator or annotation that communicates."""
        times = self._single(event)
        if times is None:
            return
        external = int(external_ids([bytes(event.args)])[0])
        self.ranges.append(HostRange(name, *times, self.thread_of(event), external, annotation, call, waits))

    def launches(self) -> Launches:
        """All calls that matter, in order of their start."""
        taken = np.concatenate(self._pieces, axis=1) if self._pieces else np.empty((_WIDTH, 0), dtype=np.int64)
        self._pieces.clear()
        taken = taken[:, np.lexsort((-taken[1], taken[0]))]
        start, end, correlation, name, thread = (np.ascontiguousarray(c) for c in taken)
        threads = [(label(pid), label(tid)) for pid, tid in self._threads]
        return Launches(start, end, correlation, name, thread, self._call_names, threads)


__all__ = ["COMMS", "NONE", "Annotation", "HostEvents"]
