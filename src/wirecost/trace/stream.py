"""Reads the events of a JSON trace slice by slice in bounded memory, and separates broken parts from valid ones.

On the fast path a slice of the event list is cut at a `},{` and decoded at once. A cut is right exactly if
`[slice]` is valid JSON, because JSON is read from left to right: a slice that starts between two elements and is
valid up to its end also ends between two elements. So no cut needs a second check, and a slice that can't be
decoded goes through `recovery` event by event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.recovery import Recovery, scan_value
from wirecost.trace.source import TraceError
from wirecost.trace.typed import Decoder, EventDecoder

SLICE_BYTES = 1 << 17  # with its events fits a core's second-level cache; larger slices decode slower
MAX_ELEMENT_BYTES = 1 << 24
MAX_METADATA_BYTES = 1 << 28
_MOST_KEYS = 50


_BOUNDARY = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_EVENTS_AGAIN = re.compile(rb'"traceEvents"\s*:\s*\[|\{\s*"ph"\s*:')
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_WANTED = frozenset(
    ("distributedInfo", "baseTimeNanoseconds", "host_name", "traceName", "displayTimeUnit", "schemaVersion")
)


class Slice(NamedTuple):
    """Some events, each of its category's type or a plain `Event`, and the text of their list."""

    events: list[Any]
    text: bytes


class Receiver(Protocol):
    """Takes the slices of a trace."""

    def add(self, slice_: Slice) -> None:
        """Takes some events."""
        ...


def read_events(path: Path, stream: EventStream, receiver: Receiver) -> int:
    """Gives all events of the trace at `path` to a receiver, and returns their number.

    Raises:
        TraceError: if the file is no trace; it names the file.
    """
    count = 0
    try:
        for slice_ in stream:
            receiver.add(slice_)
            count += len(slice_.events)
    except TraceError as error:
        raise named_error(path, error) from error
    return count


def named_error(path: Path, error: TraceError) -> TraceError:
    """Returns the same error with the name of the file, once."""
    return TraceError(str(error) if str(error).startswith(f"{path}: ") else f"{path}: {error}")


class EventStream:
    """Iterates over the slices of a trace: lists of events with their text.

    After the iteration `metadata` holds the top-level values of interest, and `saw_events` is whether there was an
    event list. `decoder` decodes the lists of events, by default an `EventDecoder`. The iteration raises
    TraceError if the text is not a trace.
    """

    def __init__(
        self, chunks: Iterator[bytes], diagnostics: DiagnosticCounts, decoder: Decoder | None = None
    ) -> None:
        self._chunks = chunks
        self._diagnostics = diagnostics
        self._buffer = b""
        self._eof = False
        self._decoder: Decoder = decoder or EventDecoder()
        self._recovery = Recovery(self._decoder.event_decoder, diagnostics)
        self.metadata: dict[str, Any] = {}
        self.keys: list[str] = []  # of the top-level object, the first few
        self.saw_events = False

    def __iter__(self) -> Iterator[Slice]:
        self._fill(SLICE_BYTES)
        self._buffer = self._buffer.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if self._buffer[:1] == b"[":
            # Chrome's array form. Its closing bracket is optional, so a missing one doesn't prove a cut-off file.
            yield from self._list()
        elif self._buffer[:1] == b"{":
            self._buffer = self._buffer[1:]
            yield from self._members()
        else:
            yield from self._again("the file starts with neither { nor [")
            if not self.saw_events:
                raise TraceError("not JSON: expected a profiler trace, an object with a list 'traceEvents'")
            yield from self._members(first=False)
        if self._more():
            self._diagnostics.add("data_after_end")

    def _fill(self, size: int) -> None:
        if self._eof or len(self._buffer) >= size:
            return
        parts, have = [self._buffer], len(self._buffer)
        while have < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._eof = True
                break
            parts.append(chunk)
            have += len(chunk)
        self._buffer = b"".join(parts)

    def _more(self) -> bool:
        """Returns whether anything but white space is left."""
        while True:
            self._buffer = self._buffer.lstrip(b" \t\r\n")
            if self._buffer or self._eof:
                return bool(self._buffer)
            self._fill(SLICE_BYTES)

    def _members(self, *, first: bool = True) -> Iterator[Slice]:
        """Yields the members of the top-level object, up to and with its closing brace."""
        while True:
            if not self._more():
                if not self._diagnostics.count("cut_off"):
                    self._diagnostics.add("cut_off", detail="the file ends inside its outermost object")
                return
            if self._buffer[:1] == b"}":
                self._buffer = self._buffer[1:]
                return
            key = self._key(first)
            first = False
            if key == "traceEvents" and self._buffer[:1] == b"[":
                if self.saw_events:
                    self._diagnostics.add("second_event_list")
                    if self._value() is not None:
                        continue
                else:
                    yield from self._list()
                    continue
            elif key is not None:
                value = self._value()
                if value is not None:
                    if key in _WANTED:
                        self._keep(key, value)
                    continue
            yield from self._again(f"after {key!r}"[:80] if key else "")
            if not self._buffer and self._eof:
                return

    def _key(self, first: bool) -> str | None:
        """Consumes `, "key":` (no comma before the first) and gives the key; None where something else stands."""
        self._fill(1 << 16)
        start = 0
        if not first:
            if self._buffer[:1] != b",":
                return None
            start = 1
        match = _KEY.match(self._buffer, start, start + (1 << 16))
        if match is None:
            return None
        try:
            key = json.loads(match[1])
        except ValueError:
            return None
        self._buffer = self._buffer[match.end() :]
        self._fill(1)
        if len(self.keys) < _MOST_KEYS:
            self.keys.append(key)
        return key

    def _value(self) -> bytes | None:
        """Consumes a complete value and returns its text; None, with nothing consumed, if it is broken or too
        large.
        """
        size = 1 << 16
        while True:
            self._fill(size)
            end = scan_value(self._buffer.decode("latin-1"), 0)
            # A number at the end of the data read so far may continue.
            if end is not None and (end < len(self._buffer) or self._eof):
                value, self._buffer = self._buffer[:end], self._buffer[end:]
                try:
                    value.decode()
                except UnicodeDecodeError:
                    self._diagnostics.add("broken_metadata", detail="invalid UTF-8")
                return value
            if self._eof or size >= MAX_METADATA_BYTES:
                return None
            size = max(2 * size, len(self._buffer) + 1)

    def _keep(self, key: str, value: bytes) -> None:
        try:
            self.metadata[key] = json.loads(value.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            self._diagnostics.add("broken_metadata", detail=key)

    def _again(self, where: str) -> Iterator[Slice]:
        """Goes on past a broken place outside the event list to the next place where events can be seen."""
        self._diagnostics.add("broken_metadata", detail=where)
        while True:
            self._fill(SLICE_BYTES)
            match = _EVENTS_AGAIN.search(self._buffer)
            if match is not None:
                break
            if self._eof:
                self._buffer = b""
                return
            self._buffer = self._buffer[-64:]
            self._fill(SLICE_BYTES)
        listed = match[0].startswith(b'"')
        self._buffer = self._buffer[match.end() - 1 if listed else match.start() :]
        yield from self._list(opened=not listed)

    def _list(self, *, opened: bool = False) -> Iterator[Slice]:
        """Yields the event list from its bracket (or, `opened`, from an element) up to and with its closing
        bracket."""
        self.saw_events = True
        if not opened:
            self._buffer = self._buffer[1:]
        size = SLICE_BYTES
        while True:
            self._fill(size)
            buffer = self._buffer
            cut, following = _last_boundary(buffer)
            if not cut and not self._eof and size < MAX_ELEMENT_BYTES:
                size *= 2
                continue
            size = SLICE_BYTES
            text = b"".join((b"[", memoryview(buffer)[:cut], b"]")) if cut else b"[" + buffer
            ended = False
            try:
                events = self._decode(text)
                ended = not cut
                consumed = len(text) - 1 if ended else following
            except msgspec.MsgspecError as error:
                events, text = self._until_bracket(text, error)
                ended, consumed = events is not None, len(text) - 1
            except RecursionError:
                events, consumed = None, 0
            if events is None:
                events, consumed, ended = self._recovery.events(buffer, cut or len(buffer), eof=self._eof)
            if events:
                yield Slice(events, text)
            self._buffer = buffer[consumed:]
            if ended:
                return
            if not self._more():
                self._diagnostics.add("cut_off", detail="the file ends inside its list of events")
                return

    def _decode(self, text: bytes) -> list[Any]:
        if not text.isascii():
            try:
                text.decode()  # msgspec doesn't check the encoding of skipped text
            except UnicodeDecodeError as error:
                raise msgspec.DecodeError("invalid UTF-8") from error
        return self._decoder(text)

    def _until_bracket(self, text: bytes, error: msgspec.MsgspecError) -> tuple[list[Any] | None, bytes]:
        """Returns where the list closes inside the text: its events, and the text up to there."""
        match = _TRAILING.search(str(error))
        if match is None:
            return None, text
        complete = text[: int(match[1])].rstrip()
        try:
            return self._decode(complete), complete
        except (msgspec.MsgspecError, RecursionError):
            return None, text


def _last_boundary(buffer: bytes) -> tuple[int, int]:
    """Returns (end of an element, start of the next) of the last `},{`; zeros where there is none."""
    end = len(buffer)
    while (at := buffer.rfind(b"}", 0, end)) >= 0:
        match = _BOUNDARY.match(buffer, at)
        if match is not None:
            return at + 1, match.end() - 1
        end = at
    return 0, 0
