"""The original events of the trace files on one clock, with process and thread numbers that are distinct over
ranks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.numbers import NotANumber, OutOfRange, exact_ns
from wirecost.trace.page_data import Clock
from wirecost.trace.source import SQLITE, TraceError, chunks, magic
from wirecost.trace.stream import EventStream
from wirecost.trace.timeline import COMMUNICATION, COMPUTE
from wirecost.trace.typed import PlainDecoder

if TYPE_CHECKING:
    from wirecost.trace.rank import RankTrace
    from wirecost.trace.result import TraceSet

_NAMES = ("process_name", "thread_name", "process_labels", "process_sort_index", "thread_sort_index")
_LONGEST_NAME = 4096
# Phases with a time of their own (Trace Event Format): complete, begin, end, instants, counters, flows, async.
_TIMED = frozenset("XBEiICstfbenSTpF")
_FLOWS = frozenset("stfbenSTpF")
# Flow ids of one file are below this, so that those of several don't meet; JSON readers hold 2**53 exactly.
_IDS = 1 << 40


class _Event(msgspec.Struct, gc=False):
    """A trace event with all that a viewer reads."""

    ph: str | None = None
    cat: str | None = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    id: Any = None
    bp: Any = None
    s: Any = None
    args: Any = None


class Rows:
    """Processes and threads of the written file: numbers that no two ranks share, and their names and order."""

    def __init__(self) -> None:
        self._pids: dict[object, int] = {}
        self._tids: dict[object, int] = {}
        self._names: dict[tuple[str, int, int], Any] = {}
        self._order: dict[int, int] = {}
        self._used: set[int] = set()

    def process(self, key: object, order: int, default: str) -> int:
        """Returns the number of a process; `order` sorts processes, `default` names it until the trace does."""
        pid = self._pids.get(key)
        if pid is None:
            pid = self._pids[key] = len(self._pids) + 1
            self._order[pid] = order + pid  # in the order in which they are seen
            self.name("process_name", pid, 0, {"name": default})
        return pid

    def thread(self, pid: int, key: object, default: str, *, used: bool = True) -> int:
        """Returns the number of a thread: of its own over all processes, since viewers key threads by it. `used`
        says that it has events, so that its process is worth a name."""
        if used:
            self._used.add(pid)
        tid = self._tids.get((pid, key))
        if tid is None:
            tid = self._tids[pid, key] = 1_000_000 + len(self._tids)
            self.name("thread_name", pid, tid, {"name": default})
        return tid

    def name(self, kind: str, pid: int, tid: int, args: dict[str, Any]) -> None:
        self._names[kind, pid, tid] = args

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Yields names and order of the processes that have events, and of their threads, as metadata events."""
        for (kind, pid, tid), args in self._names.items():
            if pid in self._used:
                yield {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}
        for pid, order in self._order.items():
            if pid not in self._used:
                continue
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "ts": 0,
                   "args": {"sort_index": order}}  # fmt: skip


def us(ns: int) -> float:
    """Returns nanoseconds in microseconds. Readers that cut `us * 1000` to a whole number and readers that round
    it both get the same nanoseconds back, up to 13 days."""
    value = ns / 1000
    return value if int(value * 1000) == ns else math.nextafter(value, math.inf)


def rank_name(trace: RankTrace) -> str:
    return "rank ?" if trace.rank is None else f"rank {trace.rank}"


def originals(traces: TraceSet, rows: Rows) -> Iterator[dict[str, Any]]:
    """Yields the events of all files, each file once. Files that hold no JSON events (Nsight Systems exports), or
    that are gone, give the device events that were kept."""
    clock = Clock(traces)
    by_file: dict[str, list[tuple[int, RankTrace]]] = {}
    for number, trace in enumerate(traces.traces):
        if trace.timeline is not None:
            by_file.setdefault(trace.file, []).append((number, trace))
    for file, listed in by_file.items():
        number, trace = listed[0]
        shift = trace.base_ns - clock.zero(trace)
        label = rank_name(trace) if len(listed) == 1 else Path(file).name
        if _has_events(file):
            yield from _of_file(Path(file), (number, label, shift), rows)
        else:
            for number, trace in listed:
                yield from _kept(number, trace, clock.zero(trace), rows)


def _has_events(file: str) -> bool:
    try:
        return Path(file).is_file() and not magic(Path(file)).startswith(SQLITE)
    except TraceError:
        return False


def _of_file(path: Path, of: tuple[int, str, int], rows: Rows) -> Iterator[dict[str, Any]]:
    number, label, shift = of
    diagnostics = DiagnosticCounts()
    for events, _ in EventStream(chunks(path, diagnostics), diagnostics, PlainDecoder(_Event)):
        for event in events:
            original = _given(cast("_Event", event), number, label, shift, rows)
            if original is not None:
                yield original


def _given(event: _Event, number: int, label: str, shift: int, rows: Rows) -> dict[str, Any] | None:
    """Returns the event as it is written; None if a viewer can't draw it."""
    if event.ph not in _TIMED and event.ph != "M":
        return None
    name = event.name[:_LONGEST_NAME] if isinstance(event.name, str) else str(event.name)[:_LONGEST_NAME]
    process = str(event.pid)[:200]
    pid = rows.process((number, process), 10_000 * number, f"{label}: {process}")
    if event.ph == "M":
        _named(event, name, label, pid, number, rows)
        return None
    thread = str(event.tid)[:200]
    tid = rows.thread(pid, thread, thread)
    start = _ns(event.ts)
    if start is None:
        return None
    written: dict[str, Any] = {
        "ph": event.ph, "cat": event.cat or "", "name": name, "pid": pid, "tid": tid, "ts": us(start + shift)
    }  # fmt: skip
    if event.ph == "X":
        length = _ns(event.dur)
        if length is None or length < 0:
            return None
        written["dur"] = us(length)
    if event.ph in _FLOWS:
        written["id"] = _id(event.id, number)
        if event.bp == "e":
            written["bp"] = "e"
    if event.ph in "iI" and event.s in ("g", "p", "t"):
        written["s"] = event.s
    if isinstance(event.args, dict):
        written["args"] = event.args
    return written


def _named(event: _Event, name: str, label: str, pid: int, number: int, rows: Rows) -> None:
    """Takes the name that a metadata event gives a process or thread."""
    args = event.args if isinstance(event.args, dict) else {}
    if name not in _NAMES or name == "process_sort_index":
        return
    if name == "process_name":
        args = {"name": f"{label}: {str(args.get('name', event.pid))[:_LONGEST_NAME]}"}
    tid = (
        rows.thread(pid, str(event.tid)[:200], str(event.tid)[:200], used=False)
        if name.startswith("thread")
        else 0
    )
    rows.name(name, pid, tid, args)


def _ns(text: msgspec.Raw) -> int | None:
    try:
        return exact_ns(bytes(text)).__floor__()
    except (NotANumber, OutOfRange):
        return None


def _id(value: object, number: int) -> int | str:
    if isinstance(value, int) and 0 <= value < _IDS:
        return number * _IDS + value
    return f"{number}/{re.sub(r'[^0-9a-zA-Z]', '', str(value))[:40]}"


def _kept(number: int, trace: RankTrace, zero: int, rows: Rows) -> Iterator[dict[str, Any]]:
    """Yields the device events that the time line keeps."""
    assert trace.timeline is not None
    events = trace.timeline.events
    pid = rows.process((number, "device"), 10_000 * number, f"{rank_name(trace)}: {trace.device}")
    tids = [rows.thread(pid, stream, f"stream {stream}") for stream in events.streams]
    for start, end, name, stream, kind in zip(
        events.start_ns.tolist(), events.end_ns.tolist(), events.name.tolist(), events.stream.tolist(),
        events.kind.tolist(), strict=True,
    ):  # fmt: skip
        category = "kernel" if kind in (COMPUTE, COMMUNICATION) else "gpu_memcpy"
        yield {
            "ph": "X", "cat": category, "name": events.names[name][:_LONGEST_NAME], "pid": pid,
            "tid": tids[stream], "ts": us(start - zero), "dur": us(end - start),
        }  # fmt: skip
