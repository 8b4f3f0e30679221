"""Device events of one file, taken by columns."""

from __future__ import annotations

import re
from array import array

import msgspec
import numpy as np
import numpy.typing as npt

from wirecost.trace.arguments import Arguments
from wirecost.trace.categories import COPY, FILL, KERNEL
from wirecost.trace.classify import Classifier
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.recorded import NONE, Call, Columns, among
from wirecost.trace.times import TimeColumns, Times, column
from wirecost.trace.typed import Id, Plain, Work, WorkArguments

_DESCRIBED = b'"Collective name"'
_CORRELATION = re.compile(rb'"correlation"[ \t\r\n]*:[ \t\r\n]*"?(\d{1,18})"?[ \t\r\n]*[,}]')
_EXTERNAL = re.compile(rb'"[Ee]xternal id"[ \t\r\n]*:[ \t\r\n]*"?(\d{1,18})"?[ \t\r\n]*[,}]')
# An odd multiplier: it mixes the columns of a row into one number.
_MIXER = np.uint64(0x9E3779B97F4A7C15)
_identifier = msgspec.json.Decoder(Id).decode


def correlation_of(arguments: bytes) -> int:
    """Returns the correlation id in an event's arguments; -1 if there is none."""
    return _number(arguments, _CORRELATION)


def external_of(arguments: bytes) -> int:
    """Returns the external id in an event's arguments; -1 if there is none."""
    return _number(arguments, _EXTERNAL)


def _number(arguments: bytes, pattern: re.Pattern[bytes]) -> int:
    matches = pattern.findall(arguments)
    return int(matches[-1]) if matches else NONE  # of a key that is there twice the last counts


def identifier(raw: bytes) -> Id:
    """Returns the id of a process or thread as written in the trace, a number or a text."""
    try:
        return _identifier(raw)
    except (msgspec.MsgspecError, RecursionError):
        return raw.decode("utf-8", "replace")


def label(number_or_name: Id) -> str:
    """Returns the id of a process or thread as text: `7`, `stream 7`."""
    return str(number_or_name) or "?"


class DeviceEvents:
    """Takes kernels, copies and fills; `columns` gives them."""

    def __init__(self, classifier: Classifier, diagnostics: DiagnosticCounts, times: Times) -> None:
        self._classifier, self._diagnostics, self._times = classifier, diagnostics, times
        # For each kind of device work, names (as they are, and as a plain event writes them) -> index.
        self._names: dict[int, dict[str | bytes, int]] = {KERNEL: {}, COPY: {}, FILL: {}}
        self._texts: list[str] = []
        self._communicates: list[bool] = []
        self._streams: dict[tuple[Id, Id], int] = {}
        self._spans = TimeColumns(times)
        self._kind, self._name, self._stream = array("b"), array("i"), array("i")
        self._correlation, self._external, self._shape = array("q"), array("q"), array("q")
        self._calls: dict[int, Call] = {}
        self._decode_name = msgspec.json.Decoder(str).decode
        self._decode_arguments = msgspec.json.Decoder(WorkArguments).decode
        self.arguments = Arguments(diagnostics)

    def add(self, events: list[Work], kind: int) -> bool:
        """Takes events of one kind together, several times faster than one by one; False, with nothing taken,
        where any of them is in the least unusual."""
        if not self._spans.texts([e.ts for e in events], [e.dur for e in events]):
            return False
        arguments = [e.args for e in events]
        first = len(self._name)
        table, streams = self._names[kind], self._streams
        names = [table.get(e.name, NONE) for e in events]
        if NONE in names:
            names = [self._number(e.name, kind) for e in events]
        rows = [streams.get((e.pid, e.tid), NONE) for e in events]
        if NONE in rows:
            rows = [streams.setdefault((e.pid, e.tid), len(streams)) for e in events]
        self._kind.frombytes(bytes([kind]) * len(events))
        self._name.fromlist(names)
        self._stream.fromlist(rows)
        self._correlation.fromlist([a.correlation for a in arguments])
        self._external.fromlist([a.external if a.external >= 0 else a.external_old for a in arguments])
        self._shape.fromlist([NONE if a.grid is None else hash(a.grid) for a in arguments])
        known = self._communicates
        for row, (name, argument) in enumerate(zip(names, arguments, strict=True)):
            if known[name] or argument.collective is not None:
                self._calls[first + row] = self.arguments.call(argument, self._texts[name])
        return True

    def add_event(self, event: Plain, kind: int) -> None:
        """Takes an event that is unusual in some way."""
        if event.ph != "X":
            self._diagnostics.add("unsupported_phase")
            return
        span = self._times.span(bytes(event.ts), bytes(event.dur))
        if span is None:
            return
        name = self._name_of(event, kind)
        if name is None:
            self._diagnostics.add("unnamed_event")
            return
        text = bytes(event.args)
        try:
            args = self._decode_arguments(text) if text else WorkArguments()
        except (msgspec.MsgspecError, RecursionError):
            args = WorkArguments(correlation=correlation_of(text), external=external_of(text))
        if self._communicates[name] or _DESCRIBED in text:
            self._calls[len(self._name)] = self.arguments.call(text, self._texts[name])
        self._spans.span(*span)
        self._kind.append(kind)
        self._name.append(name)
        self._stream.append(self.stream_of(event))
        self._correlation.append(args.correlation)
        self._external.append(args.external if args.external >= 0 else args.external_old)
        self._shape.append(NONE if args.grid is None else hash(args.grid))

    def _name_of(self, event: Plain, kind: int) -> int | None:
        raw = bytes(event.name)
        known = self._names[kind].get(raw)
        if known is not None:
            return known
        try:
            text = self._decode_name(raw)
        except (msgspec.MsgspecError, RecursionError):
            return None
        self._names[kind][raw] = number = self._number(text, kind)
        return number

    def _number(self, text: str, kind: int) -> int:
        """Returns the index of a name."""
        table = self._names[kind]
        number = table.get(text)
        if number is None:
            table[text] = number = len(self._texts)
            self._texts.append(text)
            self._communicates.append(self._classifier.communicates(text, kind))
        return number

    def stream_of(self, event: Plain) -> int:
        """Returns the index of the stream on whose row an event stands."""
        key = identifier(bytes(event.pid)), identifier(bytes(event.tid))
        return self._streams.setdefault(key, len(self._streams))

    def columns(self) -> Columns:
        """Returns all events, exact duplicates taken out."""
        start, end = self._spans.finish()
        kind, name, stream = column(self._kind), column(self._name), column(self._stream)
        correlation, external = column(self._correlation), column(self._external)
        shape = column(self._shape)
        keep = np.ones(len(start), dtype=np.bool_)
        keep[self._spans.unsound] = False
        again = _duplicates(start, end, name, stream, kind, correlation, external, shape) & keep
        self._diagnostics.add("duplicate_event", int(again.sum()))
        keep &= ~again
        calls = self._calls
        if not keep.all():
            renumbered = np.cumsum(keep) - 1
            calls = {int(renumbered[row]): call for row, call in calls.items() if keep[row]}
            start, end, kind, name, stream, correlation, external, shape = (
                c[keep] for c in (start, end, kind, name, stream, correlation, external, shape)
            )
        # PyTorch up to 2.1 and calls outside of operators carry the correlation id where the operator's should be.
        external = np.where(external == correlation, NONE, external)
        # MTIA's profiler writes its copies among the kernels.
        copies = [number for number, text in enumerate(self._texts) if text == "dma_request"]
        if copies:
            kind = np.where(np.isin(name, copies) & (kind == KERNEL), COPY, kind)
        columns = Columns(
            start,
            end,
            kind.astype(np.int8),
            name.astype(np.int64),
            stream.astype(np.int64),
            np.zeros(len(start), dtype=np.bool_),
            self._texts,
            [(label(pid), label(tid)) for pid, tid in self._streams],
            calls,
            correlation=correlation,
            external=external,
            shape=shape,
        )
        self._diagnostics.add("zero_duration", int((columns.start_ns == columns.end_ns).sum()))
        return columns


def _duplicates(*columns: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.bool_]:
    """Returns a mask that is true for every row that equals an earlier one in all columns."""
    n = len(columns[0])
    duplicate = np.zeros(n, dtype=np.bool_)
    mixed = np.zeros(n, dtype=np.uint64)
    for values in columns:
        mixed = (mixed ^ values.astype(np.uint64)) * _MIXER
        mixed ^= mixed >> np.uint64(29)
    ordered = np.sort(mixed)
    suspects = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(suspects) == 0:
        return duplicate
    rows = np.flatnonzero(among(mixed, suspects))
    seen: set[tuple[int, ...]] = set()
    for row, event in zip(rows.tolist(), zip(*(c[rows].tolist() for c in columns), strict=True), strict=True):
        duplicate[row] = event in seen
        seen.add(event)
    return duplicate
