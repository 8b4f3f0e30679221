"""Event by event through the part of a trace that isn't valid JSON: keeps the sound, counts the rest."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from wirecost.trace.diagnostic_counts import DiagnosticCounts

# Past a broken element the next one starts after `},` before `{`, or at `{"ph":`; or the list closes.
_RESYNC = re.compile(
    rb'\}\s*,\s*(?=\{)|(?P<head>\{\s*"ph"\s*:)|\}\s*(?P<close>\])(?=\s*(?:,\s*"[A-Za-z]|\}\s*$|\}\s*\{))'
)
# Kineto's order of fields. An unescaped quote in a name breaks the JSON but not this.
_HEAD = re.compile(
    rb'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"(?P<cat>[\w ]{1,40})"\s*,'
    rb'\s*"name"\s*:\s*"(?P<name>[^\n]{0,4096}?)"\s*,'
    rb'\s*"pid"\s*:\s*(?P<pid>"[^"\\\n]{0,80}"|-?\d{1,19})\s*,\s*"tid"\s*:\s*(?P<tid>"[^"\\\n]{0,80}"|-?\d{1,19})\s*,'
    rb'\s*"ts"\s*:\s*(?P<ts>-?\d+(?:\.\d+)?)\s*,\s*"dur"\s*:\s*(?P<dur>-?\d+(?:\.\d+)?)\s*[,}]'
)
_SPACE = re.compile(r"[ \t\r\n]*")
_LOOKAHEAD = 1 << 16

# Numbers are only skipped here, so hostile ones are never converted.
_scan = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len).raw_decode


def scan_value(text: str, start: int) -> int | None:
    """Returns the end of the JSON value at `start`; None if there is none. `text` is bytes as Latin-1."""
    try:
        return _scan(text, start)[1]
    except (ValueError, RecursionError):
        return None


class Recovery:
    """Takes elements off the event list one at a time."""

    def __init__(self, decoder: msgspec.json.Decoder[Any], diagnostics: DiagnosticCounts) -> None:
        self._decoder, self._diagnostics = decoder, diagnostics

    def events(self, buffer: bytes, limit: int, *, eof: bool) -> tuple[list[Any], int, bool]:
        """Returns (events, bytes taken, whether the list closed) of the elements that start before `limit`.

        `buffer` starts at an element. Unless `eof`, no element is judged with less than 64 KiB behind its start,
        so that none is called broken for being cut by the buffer; a longer one is given up.
        """
        text = buffer.decode("latin-1")
        events: list[Any] = []
        at, separated, any_yet = 0, True, False
        while True:
            at = _SPACE.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]
            if at >= len(text) or (separated and at >= limit):
                break
            if separated and any_yet and not eof and len(text) - at < _LOOKAHEAD:
                break
            mark = text[at]
            if mark == ",":
                if separated:
                    self._diagnostics.add("stray_separator")
                separated = True
                at += 1
                continue
            if mark == "]":
                if separated and any_yet:
                    self._diagnostics.add("stray_separator")
                return events, at + 1, True
            if not separated:
                self._diagnostics.add("stray_separator")
            any_yet = True
            end = scan_value(text, at)
            if end is None:
                at, separated = self._past_broken(buffer, at, events)
            else:
                event = self._event(buffer[at:end]) if mark == "{" else self._diagnostics.add("stray_element")
                if event is not None:
                    events.append(event)
                at, separated = end, False
        return events, at, False

    def _past_broken(self, buffer: bytes, start: int, events: list[Any]) -> tuple[int, bool]:
        """Returns the position after a broken element, and whether a separator was passed.

        It adds the readable head of the element to `events`.
        """
        match = _RESYNC.search(buffer, start + 1)
        if match is None:
            end, following, separated = len(buffer), len(buffer), True
        elif match["close"] is not None:
            end, following, separated = match.start() + 1, match.start("close"), False
        elif match["head"] is not None:
            end, following, separated = match.start(), match.start(), True
        else:
            end, following, separated = match.start() + 1, match.end(), True
        event = self._from_head(buffer[start:end])
        if event is None:
            self._diagnostics.add("broken_event")
        else:
            self._diagnostics.add("repaired_event")
            events.append(event)
        return following, separated

    def _event(self, text: bytes) -> Any | None:
        """Returns one element that is whole."""
        try:
            text.decode()
        except UnicodeDecodeError:
            self._diagnostics.add("invalid_utf8")
            text = text.decode("utf-8", "replace").encode()
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            event = self._from_head(text)
            self._diagnostics.add("broken_event" if event is None else "repaired_event")
            return event

    def _from_head(self, text: bytes) -> Any | None:
        """Returns an event from the head that kineto writes first, without its arguments."""
        match = _HEAD.match(text)
        if match is None:
            return None
        fields = {"ph": "X", "cat": match["cat"].decode(), "name": match["name"].decode("utf-8", "replace")}
        numbers = {key: msgspec.Raw(match[key]) for key in ("pid", "tid", "ts", "dur")}
        try:
            return self._decoder.decode(msgspec.json.encode(fields | numbers))
        except msgspec.MsgspecError:
            return None
