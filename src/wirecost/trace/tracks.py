"""The tracks that wirecost adds to a trace: iterations, breakdown, waits, causes and losses of each rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from wirecost.trace.causes import CAUSES, CODES
from wirecost.trace.originals import Rows, rank_name, us
from wirecost.trace.page_data import Clock
from wirecost.trace.timeline import CATEGORIES, Timeline

if TYPE_CHECKING:
    from wirecost.trace.loss import Loss
    from wirecost.trace.rank import RankTrace
    from wirecost.trace.result import TraceSet

_WORDS = {
    "compute": "compute only",
    "overlapped": "compute and communication",
    "exposed": "exposed communication",
    "memory": "exposed copies",
}
# Colours that Perfetto and chrome://tracing know by name.
_COLORS = {
    "compute": "thread_state_running",
    "overlapped": "good",
    "exposed": "terrible",
    "memory": "thread_state_iowait",
    "idle": "grey",
}

Spans = list[tuple[int, int, str, dict[str, Any]]]  # start, end, name, arguments


def tracks(traces: TraceSet, rows: Rows) -> Iterator[dict[str, Any]]:
    """Yields the added events of all ranks, one process a rank. Spans of one track never overlap."""
    clock = Clock(traces)
    for number, trace in enumerate(traces.traces):
        if trace.timeline is None:
            continue
        pid = rows.process((number, "wirecost"), 10_000 * number - 9_000, f"{rank_name(trace)}: wirecost")
        for name, spans in (
            ("iterations", _iterations(trace)),
            ("breakdown", _breakdown(trace.timeline)),
            ("waits", _waits(traces, number)),
            ("causes", _causes(trace)),
            ("losses", _losses(traces.losses, trace)),
        ):
            yield from _track(spans, name, pid, clock.zero(trace), rows)


def _track(spans: Spans, name: str, pid: int, zero: int, rows: Rows) -> Iterator[dict[str, Any]]:
    """Yields spans as complete events; what overlaps goes to a further track of the same name."""
    free: list[int] = []  # the end of the last span of each track
    tids: list[int] = []
    for start, end, text, args in sorted(spans, key=lambda span: span[:2]):
        lane = next((n for n, last in enumerate(free) if last <= start), len(free))
        if lane == len(free):
            free.append(end)
            tids.append(rows.thread(pid, (name, lane), name if lane == 0 else f"{name} {lane + 1}"))
        free[lane] = end
        color = args.pop("cname", None)
        event: dict[str, Any] = {
            "ph": "X", "cat": f"wirecost {name}", "name": text, "pid": pid, "tid": tids[lane],
            "ts": us(start - zero), "dur": us(end - start), "args": args,
        }  # fmt: skip
        if color is not None:
            event["cname"] = color
        yield event


def _iterations(trace: RankTrace) -> Spans:
    return [
        (
            i.window.start_ns, i.window.end_ns, i.window.name,
            {"window from": i.window.source, "cut": i.window.cut, **i.parts.model_dump()},
        )
        for i in trace.iterations
    ]  # fmt: skip


def _breakdown(line: Timeline) -> Spans:
    """Returns one span for each cell, with the shares of those that hold several categories."""
    length, sums = np.diff(line.edges_ns), line.sums_ns
    idle = length - sums.sum(axis=1)
    spans: Spans = []
    for n, (start, size) in enumerate(zip(line.edges_ns[:-1].tolist(), length.tolist(), strict=True)):
        parts = {c: int(v) for c, v in zip((*CATEGORIES, "idle"), [*sums[n], idle[n]], strict=True) if v}
        largest = max(parts, key=lambda c: parts[c])
        name = _WORDS.get(largest, largest)
        args: dict[str, Any] = {"cname": _COLORS[largest]}
        if len(parts) > 1:
            name = f"mostly {name}"
            args |= {f"{_WORDS.get(c, c)} ns": v for c, v in parts.items()}
        spans.append((start, start + size, name, args))
    return spans


def _waits(traces: TraceSet, number: int) -> Spans:
    """Returns what each collective of a rank waits before its data moves."""
    rank, calls = traces.traces[number].rank or 0, traces.traces[number].calls
    spans: Spans = []
    for m in traces.matched:
        if rank not in m.ranks:
            continue
        n = m.ranks.index(rank)
        start, wait, culprit = int(calls.start_ns[m.calls[n]]), int(m.wait_ns[n]), int(m.waits_for[n])
        if wait > 0:
            args = {"operation": m.op, "group": m.group, "basis": m.basis, "bubble": m.bubble}
            whom = f"waits for rank {culprit}" if culprit >= 0 else "waits"
            spans.append((start, start + wait, f"{m.op} {whom}", args))
    return spans


def _causes(trace: RankTrace) -> Spans:
    """Returns why each communication call stays exposed, where something of it does."""
    calls = trace.calls
    spans: Spans = []
    for row in np.flatnonzero((calls.cause >= 0) & (calls.exposed_ns > 0)).tolist():
        code = CODES[int(calls.cause[row])]
        args = {
            "code": code, "operation": calls.ops[calls.op[row]], "group": calls.groups[calls.group[row]],
            "exposed, ns": int(calls.exposed_ns[row]),
        }  # fmt: skip
        spans.append((int(calls.start_ns[row]), int(calls.end_ns[row]), CAUSES[code], args))
    return spans


def _losses(listed: list[Loss], trace: RankTrace) -> Spans:
    """Returns each loss at the place where it is best visible."""
    return [
        (
            loss.place.start_ns, loss.place.end_ns, loss.text,
            {"code": loss.code, "at most to be won, ns": round(loss.gain_ns), "try": loss.remedy},
        )
        for loss in listed
        if loss.place is not None and loss.place.rank == trace.rank
    ]  # fmt: skip
