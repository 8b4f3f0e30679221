"""Starts and durations of many events, from decimal text to integer nanoseconds: exactly, and a column at a
time."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.numbers import LIMIT_NS, LONGEST_NS, NotANumber, OutOfRange, exact_ns, span_ns
from wirecost.trace.recorded import Int64

_PLAIN = b"0123456789.,"
_COMMA, _DOT = ord(","), ord(".")
_MOST_DIGITS = 18  # of a number without its dot: it fits 64 bits
_ROWS = 1 << 13  # converted at once: enough that a column's fixed costs don't count
_SCALE = np.array([1000, 100, 10, 1], dtype=np.int64)


def column(values: array[int]) -> npt.NDArray[np.signedinteger]:
    """Returns a view of an array as a column of numpy's."""
    if not values:
        return np.empty(0, dtype=values.typecode)
    return np.frombuffer(values, dtype=values.typecode)


class Times:
    """Reads the times of single events, and counts unreadable ones.

    `fractions` is whether any time was finer than a microsecond.
    """

    def __init__(self, diagnostics: DiagnosticCounts) -> None:
        self._diagnostics = diagnostics
        self.fractions = False

    def span(self, ts: bytes, dur: bytes) -> tuple[int, int] | None:
        """Returns (start, end) of an event; None if its times are invalid, which is counted."""
        try:
            start, end, exact = span_ns(ts, dur)
        except NotANumber:
            self._diagnostics.add("bad_time")
            return None
        except OutOfRange:
            self._diagnostics.add("out_of_range")
            return None
        self.fractions = self.fractions or start % 1000 != 0 or end % 1000 != 0
        if end < start or (dur.startswith(b"-") and exact_ns(dur) < 0):
            self._diagnostics.add("negative_duration")
            return None
        if not exact:
            self._diagnostics.add("sub_nanosecond")
        return start, end


class TimeColumns:
    """The starts and ends of many events. A row whose times turn out to be unsound stays, as a row of
    `unsound`."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._starts, self._ends = array("q"), array("q")
        self._pending: list[tuple[bytes, bytes]] = []
        self._waiting = 0
        self.unsound: list[int] = []

    def texts(self, starts: list[bytes], lengths: list[bytes]) -> bool:
        """Takes the starts and durations of events as they are written (bytes or views of them); False, with
        nothing taken, where one of them is no plain number."""
        ts, dur = b",".join(starts), b",".join(lengths)
        if ts.translate(None, _PLAIN) or dur.translate(None, _PLAIN):
            return False
        self._pending.append((ts, dur))
        self._waiting += len(starts)
        if self._waiting >= _ROWS:
            self._convert()
        return True

    def span(self, start_ns: int, end_ns: int) -> None:
        """Takes one event's times."""
        if self._pending:
            self._convert()
        self._starts.append(start_ns)
        self._ends.append(end_ns)

    def finish(self) -> tuple[Int64, Int64]:
        """Returns all starts and ends, in the order they were taken."""
        self._convert()
        return column(self._starts), column(self._ends)

    def _convert(self) -> None:
        if not self._pending:
            return
        ts, dur = (b",".join(texts) for texts in zip(*self._pending, strict=True))
        self._pending, self._waiting = [], 0
        start, length = _nanoseconds(ts), _nanoseconds(dur)
        if start is None or length is None or start.max() > LIMIT_NS - LONGEST_NS or length.max() > LONGEST_NS:
            self._singly(ts.split(b","), dur.split(b","))
            return
        self._times.fractions = self._times.fractions or b"." in ts or b"." in dur
        self._starts.frombytes(start.tobytes())
        self._ends.frombytes((start + length).tobytes())

    def _singly(self, starts: list[bytes], lengths: list[bytes]) -> None:
        for ts, dur in zip(starts, lengths, strict=True):
            span = self._times.span(ts, dur)
            if span is None:
                self.unsound.append(len(self._starts))
            start, end = span or (0, 0)
            self._starts.append(start)
            self._ends.append(end)


def _nanoseconds(joined: bytes) -> Int64 | None:
    """Returns nanoseconds of microseconds written with at most three decimals, separated by commas; None where one
    is written otherwise.

    `joined` holds nothing but digits, dots and commas.
    """
    text = np.frombuffer(joined, dtype=np.uint8)
    commas = np.flatnonzero(text == _COMMA)
    ends = np.append(commas, len(text))
    starts = np.append(0, commas + 1)
    dots = np.flatnonzero(text == _DOT)
    decimals = np.zeros(len(ends), dtype=np.int64)
    if len(dots):
        # With one dot in every number, as kineto writes them, each belongs to its own; else it has to be looked
        # up.
        owner = np.arange(len(dots)) if len(dots) == len(ends) else np.searchsorted(ends, dots)
        own = ends[owner] - dots - 1
        if own.min() < 1 or own.max() > 3 or (dots <= starts[owner]).any() or (owner[1:] == owner[:-1]).any():
            return None
        decimals[owner] = own
    digits = ends - starts - (decimals > 0)
    if digits.min() < 1 or digits.max() > _MOST_DIGITS:
        return None
    numbers = np.fromstring(joined.replace(b".", b""), dtype=np.int64, sep=",")
    return numbers * _SCALE[decimals] if len(numbers) == len(ends) else None
