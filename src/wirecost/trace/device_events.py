"""Device events of one file, taken by columns."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from wirecost.trace.arguments import Arguments
from wirecost.trace.categories import COPY, DEVICE_CATEGORIES, FILL, KERNEL
from wirecost.trace.classify import Classifier
from wirecost.trace.numbers import LIMIT_NS, LONGEST_NS, NS_OF_FRACTION, NotANumber, OutOfRange, exact_ns, span_ns
from wirecost.trace.problems import Problems
from wirecost.trace.recorded import NONE, Call, Columns, Int64
from wirecost.trace.stream import Event

BY_KIND = [(kind, {c for c, k in DEVICE_CATEGORIES.items() if k == kind}) for kind in (KERNEL, COPY, FILL)]
_MOST_LENGTHS = 100_000
_DESCRIBED = b'"Collective name"'
# A NUL can't stand in JSON: joined by it, texts are searched together and told apart.
_CORRELATION = re.compile(rb'\0|"correlation"[ \t\r\n]*:[ \t\r\n]*"?(\d{1,18})"?[ \t\r\n]*[,}]')
_EXTERNAL = re.compile(rb'\0|"[Ee]xternal id"[ \t\r\n]*:[ \t\r\n]*"?(\d{1,18})"?[ \t\r\n]*[,}]')
_SHAPE = re.compile(rb'\0|"grid"[ \t\r\n]*:[ \t\r\n]*(\[[^\]]{0,80}\])')
# start, end, kind, name, stream, check, correlation, external, shape
_WIDTH = 9


def correlations(arguments: list[bytes]) -> Int64:
    """The correlation id in each of the arguments, -1 where there is none."""
    return _numbers(arguments, _CORRELATION)


def external_ids(arguments: list[bytes]) -> Int64:
    """The external id in each of the arguments, -1 where there is none."""
    return _numbers(arguments, _EXTERNAL)


def _numbers(arguments: list[bytes], pattern: re.Pattern[bytes]) -> Int64:
    found = _once_each(arguments, pattern)
    if found is not None:
        return np.array(found, dtype=np.int64)
    out = np.full(len(arguments), NONE, dtype=np.int64)
    for row, text in enumerate(arguments):
        numbers = pattern.findall(text)
        if numbers and numbers[-1]:  # of a key that is there twice the last counts, as JSON readers have it
            out[row] = int(numbers[-1])
    return out


def _once_each(arguments: list[bytes], pattern: re.Pattern[bytes]) -> list[bytes] | None:
    """What `pattern` finds in each of the arguments; None unless it finds exactly one in every one."""
    found = pattern.findall(b"\0".join(arguments))
    if len(found) == 2 * len(arguments) - 1 and not any(found[1::2]) and all(found[::2]):
        return found[::2]
    return None


class Times:
    """Starts and durations as text to integer nanoseconds; what can't be is counted."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._lengths: dict[bytes, int] = {}  # durations as written -> ns; the same few come again and again
        self.fractions = False

    def many(self, events: list[Event]) -> tuple[Int64, Int64] | None:
        """(starts, ends) of events; None where any of them is in the least unusual."""
        starts, lengths = [bytes(e.ts) for e in events], [bytes(e.dur) for e in events]
        digits = b"".join(starts) + b"".join(lengths)
        if b"-" in digits or [e.ph for e in events] != ["X"] * len(events):
            return None
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
            return None
        if len(start) and (start.max() > LIMIT_NS - LONGEST_NS or length.max() > LONGEST_NS):
            return None
        self.fractions = self.fractions or b"." in digits
        return start, start + length

    def one(self, event: Event) -> tuple[int, int] | None:
        """(start, end) of an event; None, counted, where it has no sound times."""
        ts, dur = bytes(event.ts), bytes(event.dur)
        try:
            start, end, exact = span_ns(ts, dur)
        except NotANumber:
            self._problems.add("bad_time")
            return None
        except OutOfRange:
            self._problems.add("out_of_range")
            return None
        self.fractions = self.fractions or start % 1000 != 0 or end % 1000 != 0
        if end < start or (dur.startswith(b"-") and exact_ns(dur) < 0):
            self._problems.add("negative_duration")
            return None
        if not exact:
            self._problems.add("sub_nanosecond")
        return start, end


class DeviceEvents:
    """Takes kernels, copies and fills; `columns` gives them."""

    def __init__(self, classifier: Classifier, problems: Problems, times: Times) -> None:
        self._classifier, self._problems, self._times = classifier, problems, times
        # For each kind of device work, names as written -> index.
        self._names: tuple[dict[bytes, int], ...] = tuple({} for _ in BY_KIND)
        self._texts: list[str] = []
        self._communicates: list[bool] = []
        self._streams: dict[tuple[bytes, bytes], int] = {}
        self._pieces: list[Int64] = []
        self._count = 0
        self._calls: dict[int, Call] = {}
        self._decode_name = msgspec.json.Decoder(str).decode
        self.arguments = Arguments(problems)

    def add(self, events: list[Event], kind: int) -> None:
        if not self._batch(events, kind):
            for event in events:
                self._one(event, kind)

    def _batch(self, work: list[Event], kind: int) -> bool:
        """Takes events of one kind together, by columns: several times faster than one by one.

        False, with nothing taken, where any of them is in the least unusual.
        """
        times = self._times.many(work)
        if times is None:
            return False
        table = self._names[kind]
        names = [table.get(n) for n in [bytes(e.name) for e in work]]
        if None in names:
            names = [self._name_of(e, kind) for e in work]
            if None in names:
                return False
        streams = [self._streams.get(k) for k in [(bytes(e.pid), bytes(e.tid)) for e in work]]
        if None in streams:
            streams = [self.stream_of(e) for e in work]
        arguments = [bytes(e.args) for e in work]
        self._take(times, kind, names, streams, arguments)
        return True

    def _take(
        self, times: tuple[Int64, Int64], kind: int, names: list[Any], streams: list[Any], arguments: list[bytes]
    ) -> None:
        piece = np.empty((_WIDTH, len(names)), dtype=np.int64)
        columns: list[Any] = [*times, kind, names, streams, [hash(a) for a in arguments]]
        for row, column in enumerate(columns):
            piece[row] = column
        piece[6] = correlations(arguments)
        piece[7] = external_ids(arguments)
        shapes = _once_each(arguments, _SHAPE) if kind == KERNEL else None
        piece[8] = [hash(s) for s in shapes] if shapes is not None else NONE
        known = self._communicates
        for row, (name, text) in enumerate(zip(names, arguments, strict=True)):
            if known[name] or _DESCRIBED in text:
                self._calls[self._count + row] = self.arguments.call(text, self._texts[name])
        self._pieces.append(piece)
        self._count += len(names)

    def _one(self, event: Event, kind: int) -> None:
        if event.ph != "X":
            self._problems.add("unsupported_phase")
            return
        times = self._times.one(event)
        if times is None:
            return
        name = self._name_of(event, kind)
        if name is None:
            self._problems.add("unnamed_event")
            return
        start, end = (np.array([t], dtype=np.int64) for t in times)
        self._take((start, end), kind, [name], [self.stream_of(event)], [bytes(event.args)])

    def _name_of(self, event: Event, kind: int) -> int | None:
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
        self._communicates.append(self._classifier.communicates(text, kind))
        return number

    def stream_of(self, event: Event) -> int:
        """The index of the stream on whose row an event stands."""
        return self._streams.setdefault((bytes(event.pid), bytes(event.tid)), len(self._streams))

    def columns(self) -> Columns:
        """All events, exact duplicates taken out."""
        taken = np.concatenate(self._pieces, axis=1) if self._pieces else np.empty((_WIDTH, 0), dtype=np.int64)
        self._pieces.clear()
        start, end, kind, name, stream, check, correlation, external, shape = taken
        keep = ~_duplicates(start, end, name, stream, kind, check)
        self._problems.add("duplicate_event", int((~keep).sum()))
        rows = np.flatnonzero(keep)
        renumbered = np.cumsum(keep) - 1
        calls = {int(renumbered[row]): call for row, call in self._calls.items() if keep[row]}
        # PyTorch up to 2.1 and calls outside of operators carry the correlation id where the operator's should be.
        external = np.where(external == correlation, NONE, external)
        columns = Columns(
            start[rows],
            end[rows],
            kind[rows].astype(np.int8),
            name[rows],
            stream[rows],
            np.zeros(len(rows), dtype=np.bool_),
            self._texts,
            [(label(pid), label(tid)) for pid, tid in self._streams],
            calls,
            correlation=correlation[rows],
            external=external[rows],
            shape=shape[rows],
        )
        self._problems.add("zero_duration", int((columns.start_ns == columns.end_ns).sum()))
        return columns


def label(raw: bytes) -> str:
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
