"""Events without a category, by the named process and thread on whose row they stand: JAX's and Ascend's
profilers.

Both write Chrome's trace events whose meaning is in the names of their rows: `/device:GPU:0`, `Stream
#14(Compute)`; `Ascend Hardware`, `Group 0 Communication`. The names may come after the events.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import numpy as np

from wirecost.trace.device_events import identifier, label
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.numbers import NotANumber, OutOfRange, nearest_span_ns
from wirecost.trace.recorded import NONE, Int64
from wirecost.trace.typed import Plain

# The relevant arguments of such events; an event may have several.
_ARGUMENTS = re.compile(
    rb'"(?P<key>hlo_op|Task Type|step_num|correlation_id|connection_id|device_ordinal)"[ \t\r\n]*:[ \t\r\n]*'
    rb'(?:"(?P<text>[^"\\]{0,200})"|(?P<number>\d{1,18}))'
)
_NAMED = ("process_name", "thread_name")


class _NameArgs(msgspec.Struct, gc=False):
    name: str | None = None


@dataclass
class Lanes:
    """Complete events without a category, as columns.

    `lane` indexes `lanes`; a missing name of a process or thread is "". `argument` holds for each key an index
    into `texts`, -1 if an event lacks the key.
    """

    start_ns: Int64
    end_ns: Int64
    name: Int64
    lane: Int64
    argument: dict[str, Int64]
    names: list[str]
    texts: list[str]
    lanes: list[tuple[str, str, str]]  # (process name, thread name, process id)

    def __len__(self) -> int:
        return len(self.start_ns)

    def number(self, key: str) -> Int64:
        """Returns a numeric argument of each event; -1 if it has none."""
        values = np.array([int(t) if t.isascii() and t.isdigit() and len(t) <= 18 else NONE for t in self.texts])
        table = np.append(values.astype(np.int64), NONE)
        return table[self.argument[key]]

    def text(self, key: str) -> list[str]:
        """Returns a text argument of each event; "" if it has none."""
        table = [*self.texts, ""]
        return [table[i] for i in self.argument[key]]


KEYS = ("hlo_op", "Task Type", "step_num", "correlation_id", "connection_id")


class LaneEvents:
    """Takes events without a category."""

    def __init__(self, diagnostics: DiagnosticCounts) -> None:
        self._diagnostics = diagnostics
        self._names: dict[bytes, int] = {}
        self._texts: dict[str, int] = {}
        self._lanes: dict[tuple[bytes, bytes], int] = {}
        self._rows: list[list[int]] = []
        self._pieces: list[Int64] = []
        self._processes: dict[str, str] = {}
        self._threads: dict[tuple[str, str], str] = {}
        self._decode_name = msgspec.json.Decoder(str).decode
        self._decode_args = msgspec.json.Decoder(_NameArgs).decode
        self.count = 0

    def name(self, event: Plain) -> None:
        """Takes the name of a process or thread from a metadata event."""
        try:
            kind = self._decode_name(bytes(event.name))
            decoded_name = self._decode_args(bytes(event.args)).name if kind in _NAMED else None
        except (msgspec.MsgspecError, RecursionError):
            return
        if decoded_name is None:
            return
        process, thread = (label(identifier(bytes(raw))) for raw in (event.pid, event.tid))
        if kind == "process_name":
            self._processes.setdefault(process, decoded_name)
        else:
            self._threads.setdefault((process, thread), decoded_name)

    def add(self, event: Plain) -> None:
        """Takes a complete event."""
        try:
            start, end = nearest_span_ns(bytes(event.ts), bytes(event.dur))
        except (NotANumber, OutOfRange):
            self._diagnostics.add("bad_time")
            return
        raw = bytes(event.name)
        lane = self._lanes.setdefault((bytes(event.pid), bytes(event.tid)), len(self._lanes))
        row = [start, end, self._names.setdefault(raw, len(self._names)), lane, *([NONE] * len(KEYS))]
        for match in _ARGUMENTS.finditer(bytes(event.args)):
            key = match["key"].decode()
            if key in KEYS:
                text = (match["text"] if match["text"] is not None else match["number"]).decode("utf-8", "replace")
                row[4 + KEYS.index(key)] = self._texts.setdefault(text, len(self._texts))
        self._rows.append(row)
        self.count += 1
        if len(self._rows) >= 4096:
            self._pack()

    def _pack(self) -> None:
        if self._rows:
            self._pieces.append(np.array(self._rows, dtype=np.int64).T.copy())
            self._rows = []

    def process_names(self) -> list[str]:
        """Returns the names of all processes."""
        return list(self._processes.values())

    def finish(self) -> Lanes:
        self._pack()
        width = 4 + len(KEYS)
        columns = np.concatenate(self._pieces, axis=1) if self._pieces else np.empty((width, 0), dtype=np.int64)
        self._pieces.clear()
        names = []
        for raw in self._names:
            try:
                names.append(self._decode_name(raw))
            except (msgspec.MsgspecError, RecursionError):
                names.append("")
        lanes = []
        for pid, tid in self._lanes:
            process, thread = label(identifier(pid)), label(identifier(tid))
            lanes.append((self._processes.get(process, ""), self._threads.get((process, thread), ""), process))
        arguments = {key: columns[4 + number] for number, key in enumerate(KEYS)}
        return Lanes(columns[0], columns[1], columns[2], columns[3], arguments, names, list(self._texts), lanes)
