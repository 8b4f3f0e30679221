"""Splits the exposed communication of every iteration: transfer, waiting for a late rank, bubble of a pipeline.

The three parts and the unknown rest sum exactly to the exposed communication.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from wirecost.breakdown.intervals import measure_before
from wirecost.trace.matched import Matched
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import Int64


class CommParts(msgspec.Struct, frozen=True):
    """The exposed communication of one rank in one iteration in ns; a rank without iterations has one named
    `whole`.

    `transfer_ns` is moving data, `wait_ns` is waiting for a late rank, `bubble_ns` is a pipeline stage's wait for
    its neighbour, and `unknown_ns` is communication that is not matched over the ranks. They sum to `exposed_ns`.
    """

    rank: int | None
    iteration: str
    window_ns: int
    exposed_ns: int
    transfer_ns: int
    wait_ns: int
    bubble_ns: int
    unknown_ns: int


def comm_parts(traces: Sequence[RankTrace], matched: Sequence[Matched]) -> list[CommParts]:
    """Returns one row for each iteration of each rank."""
    number = {t.rank or 0: i for i, t in enumerate(traces)}
    waits = [np.full(len(t.calls), -1, dtype=np.int64) for t in traces]
    bubbles = [np.zeros(len(t.calls), dtype=bool) for t in traces]
    for m in matched:
        for rank, call, wait in zip(m.ranks, m.calls, m.wait_ns, strict=True):
            waits[number[rank]][call] = wait
            bubbles[number[rank]][call] = m.bubble
    rows = []
    for trace, wait, bubble in zip(traces, waits, bubbles, strict=True):
        windows = [(i.window.name, i.window.start_ns, i.window.end_ns) for i in trace.iterations]
        if not windows and trace.parts is not None:
            windows = [("whole", trace.start_ns, trace.end_ns)]
        rows += _rows(trace, windows, wait, bubble)
    return rows


def _rows(
    trace: RankTrace, windows: Sequence[tuple[str, int, int]], wait: Int64, bubble: np.ndarray
) -> list[CommParts]:
    """Returns a row for each window (name, start, end) of a rank."""
    calls = trace.calls
    insides, spans = [], []
    for _, start_ns, end_ns in windows:
        inside = (calls.end_ns > start_ns) & (calls.start_ns < end_ns)
        begin = np.clip(calls.own_start_ns[inside], start_ns, end_ns)
        end = np.clip(calls.end_ns[inside], begin, end_ns)
        until = np.clip(calls.start_ns[inside] + np.maximum(wait[inside], 0), begin, end)
        insides.append(inside)
        spans.append((begin, until, end))
    # All at once: a long trace has hundreds of thousands of exposed spans.
    times = [time for span in spans for time in span]
    before = (
        measure_before(calls.exposed.intervals(), np.concatenate(times)) if times else np.empty(0, dtype=np.int64)
    )
    rows, at = [], 0
    for (name, start_ns, end_ns), inside in zip(windows, insides, strict=True):
        count = int(inside.sum())
        begin, until, end = before[at : at + 3 * count].reshape(3, count)
        at += 3 * count
        known, is_bubble = wait[inside] >= 0, bubble[inside]
        rows.append(_row(trace.rank, name, end_ns - start_ns, (until - begin, end - until), known, is_bubble))
    return rows


def _row(
    rank: int | None,
    name: str,
    window_ns: int,
    exposed_ns: tuple[Int64, Int64],
    known: np.ndarray,
    is_bubble: np.ndarray,
) -> CommParts:
    """Returns the row of a window. `exposed_ns`: the exposed parts of each call before and after its wait ends."""
    waited, moved = exposed_ns
    return CommParts(
        rank=rank,
        iteration=name,
        window_ns=window_ns,
        exposed_ns=int((waited + moved).sum()),
        transfer_ns=int(moved[known].sum()),
        wait_ns=int(waited[known & ~is_bubble].sum()),
        bubble_ns=int(waited[known & is_bubble].sum()),
        unknown_ns=int((waited + moved)[~known].sum()),
    )
