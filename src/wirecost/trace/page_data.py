"""The data that the page's scripts draw: cells, device events, iterations and kernels, as lists of numbers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wirecost.trace.source import TraceError
from wirecost.trace.timeline import COMMUNICATION, COMPUTE, MEMORY, Events, Timeline

if TYPE_CHECKING:
    from wirecost.trace.match import Int64
    from wirecost.trace.rank import RankTrace
    from wirecost.trace.result import TraceSet

# Cells and events in total, and of one rank: a browser draws them without a pause, and the page has at most 12 MB.
_PAGE_CELLS, _RANK_CELLS, _LEAST_CELLS = 200_000, 50_000, 100
_LONGEST_NAME, _LEAST_NAME = 300, 12
_NAME_CHARACTERS = 1_500_000  # of all names together, about
_STEP_NAME = 120
_MOST_KERNELS = 1000  # rows of the table of kernels; `--table kernels` has all
_MOST_LANES = 12  # of a rank; events of further streams share the last one
_MOST_STEPS = 20_000  # iterations that are drawn, over all ranks
_IDLE, _MIXED = 0, 5


class Clock:
    """The offset that is subtracted from the times of each trace, so that all start at 0 on one clock.

    It is the time of the first event plus the amount by which the rank's clock is ahead.
    """

    def __init__(self, traces: TraceSet) -> None:
        drawn = [t for t in traces.traces if t.timeline is not None]
        self.common = all(t.absolute_clock for t in drawn) or len(drawn) == 1
        ahead = {c.rank: c.offset_ns for c in traces.clocks if c.taken_out}
        firsts = {id(t): _first(t) for t in drawn}
        offsets = {id(t): ahead.get(t.rank or 0, 0) for t in drawn}
        zero = min((first - offsets[key] for key, first in firsts.items()), default=0)
        self._zero = {key: zero + offsets[key] if self.common else first for key, first in firsts.items()}

    def zero(self, trace: RankTrace) -> int:
        return self._zero[id(trace)]


def _first(trace: RankTrace) -> int:
    return min([trace.start_ns, *(i.window.start_ns for i in trace.iterations)])


def page_data(traces: TraceSet) -> tuple[dict[str, Any], Clock, str]:
    """Returns (data, clock, remarks for the reader).

    Raises:
        TraceError: if no trace has a time line.
    """
    drawn = [(t, w) for t, w in zip(traces.traces, traces.waits, strict=True) if t.timeline is not None]
    if not drawn:
        raise TraceError(nothing_to_draw(traces))
    clock = Clock(traces)
    limit = min(_RANK_CELLS, max(_PAGE_CELLS // len(drawn), _LEAST_CELLS))
    lines = [t.timeline.thinned(limit) for t, _ in drawn if t.timeline is not None]
    names, ops = _Numbered(), _Numbered()
    build = _Ranks(names, ops, clock, _bubbles(traces), _MOST_STEPS // len(drawn))
    ranks = [build.rank(t, line, waits) for (t, waits), line in zip(drawn, lines, strict=True)]
    kernels = _kernels(traces, names)
    data = {
        "ranks": ranks,
        "names": names.cut(),
        "ops": ops.cut(),
        "kernels": kernels,
        "distinct": len({use.name for t in traces.traces for use in t.kernels}),
        "end": max(r["end"] for r in ranks),
    }
    return data, clock, _note(lines, clock)


def nothing_to_draw(traces: TraceSet) -> str:
    """Returns why there is no time line."""
    if any(t.parts is not None for t in traces.traces):
        return "no time line to draw: the traces were read without timeline=True"
    return "nothing to draw: the traces hold no device events (profile with ProfilerActivity.CUDA)"


def _note(lines: list[Timeline], clock: Clock) -> str:
    parts = []
    if not clock.common:
        parts.append("The ranks' clocks have no common base: each rank starts at its own zero.")
    cell = max(line.cell_ns for line in lines)
    if cell:
        parts.append(
            f"To keep the page small, stretches shorter than {_us(cell)} share a cell: their sums are exact, "
            "their order inside the cell isn't kept."
        )
    return " ".join(parts)


def _us(ns: int) -> str:
    return f"{ns / 1e6:.3g} ms" if ns >= 1e6 else f"{ns / 1e3:.3g} µs" if ns >= 1e3 else f"{ns} ns"


class _Numbered:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def cut(self) -> list[str]:
        """Returns the texts in the order of their numbers, the shorter the more there are."""
        width = min(_LONGEST_NAME, max(_LEAST_NAME, _NAME_CHARACTERS // max(len(self._numbers), 1)))
        return [text[:width] for text in self._numbers]


class _Ranks:
    """Makes the data of each rank; names and operations are numbered over all of them."""

    def __init__(
        self, names: _Numbered, ops: _Numbered, clock: Clock, bubbles: dict[int, set[int]], steps: int
    ) -> None:
        self._names, self._ops, self._clock, self._bubbles, self._steps = names, ops, clock, bubbles, steps

    def rank(self, trace: RankTrace, line: Timeline, waits: Int64) -> dict[str, Any]:
        zero = self._clock.zero(trace)
        events, (streams, lane) = line.events, _lanes(line.events)
        numbers = np.array([self._names.of(name) for name in events.names], dtype=np.int64)
        columns = [
            np.diff(np.concatenate([line.edges_ns[:1], events.start_ns])),
            events.end_ns - events.start_ns,
            numbers[events.name],
            lane[events.stream],
            events.kind,
        ]
        return {
            "label": "rank ?" if trace.rank is None else f"rank {trace.rank}",
            "file": Path(trace.file).name,
            "start": int(line.edges_ns[0]) - zero,
            "end": int(line.edges_ns[-1]) - zero,
            "cells": _cells(line),
            "steps": [
                [i.window.name[:_STEP_NAME], i.window.start_ns - zero, i.window.end_ns - zero]
                for i in trace.iterations[: self._steps]
            ],
            "streams": streams,
            "events": np.stack(columns, axis=1).reshape(-1).tolist(),
            "calls": self._calls(trace, waits, events),
            "kept": len(events.start_ns),
            "total": events.total,
        }

    def _calls(self, trace: RankTrace, waits: Int64, events: Events) -> list[list[int]]:
        """Returns [event, operation and group, exposed ns, wait ns (-1: unknown), 1 for a bubble] of each
        communication event that is kept."""
        calls, bubbles = trace.calls, self._bubbles[trace.rank or 0]
        rows: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row in range(len(calls) - 1, -1, -1):
            rows[int(calls.start_ns[row]), int(calls.end_ns[row])].append(row)
        entries = []
        for event in np.flatnonzero(events.kind == COMMUNICATION):
            same = rows.get((int(events.start_ns[event]), int(events.end_ns[event])))
            if same:
                row = same.pop()
                op = self._ops.of(f"{calls.ops[calls.op[row]]} in group {calls.groups[calls.group[row]]}")
                entries.append([int(event), op, int(calls.exposed_ns[row]), int(waits[row]), int(row in bubbles)])
        return entries


def _bubbles(traces: TraceSet) -> dict[int, set[int]]:
    """Returns the calls of each rank whose waits are a pipeline's bubble."""
    rows: dict[int, set[int]] = defaultdict(set)
    for m in traces.matched:
        if m.bubble:
            for rank, call in zip(m.ranks, m.calls.tolist(), strict=True):
                rows[rank].add(call)
    return rows


def _cells(line: Timeline) -> list[int]:
    """Returns [code, length(, four sums), ...]: code 0 is idle, 1 to 4 one category, 5 several."""
    length = np.diff(line.edges_ns)
    sums = line.sums_ns
    pure = np.concatenate([(sums.sum(axis=1) == 0)[:, None], sums == length[:, None]], axis=1)
    code = np.where(pure.any(axis=1), pure.argmax(axis=1), _MIXED)
    coded: list[int] = []
    for number, size, parts in zip(code.tolist(), length.tolist(), sums.tolist(), strict=True):
        coded += (number, size)
        if number == _MIXED:
            coded += parts
    return coded


def _lanes(events: Events) -> tuple[list[str], Int64]:
    """Returns (names of the lanes, lane of each stream): the busiest streams have one of their own."""
    busy = np.bincount(
        events.stream, weights=(events.end_ns - events.start_ns).astype(float), minlength=len(events.streams)
    )
    order = [int(n) for n in np.argsort(-busy, kind="stable")]
    own = sorted(order if len(order) <= _MOST_LANES else order[: _MOST_LANES - 1])
    labels = [f"stream {events.streams[n].rsplit('/', 1)[-1]}"[:40] for n in own]
    lane = np.full(len(events.streams), len(own), dtype=np.int64)
    lane[own] = np.arange(len(own))
    if len(own) < len(order):
        labels.append("others")
    return labels, lane


def _kernels(traces: TraceSet, names: _Numbered) -> list[list[Any]]:
    """Returns [name, kind, count, total ns, why] over all ranks, longest first."""
    sums: dict[tuple[str, int, str], list[int]] = defaultdict(lambda: [0, 0])
    for use in (use for t in traces.traces if t.timeline is not None for use in t.kernels):
        kind = COMMUNICATION if use.communicates else COMPUTE if use.kind == "kernel" else MEMORY
        entry = sums[use.name, kind, use.why]
        entry[0] += use.count
        entry[1] += use.total_ns
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])[:_MOST_KERNELS]
    return [[names.of(name), kind, count, ns, why[:_LONGEST_NAME]] for (name, kind, why), (count, ns) in ordered]
