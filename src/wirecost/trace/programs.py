"""What each rank does by itself between its communication calls: its program, with all waiting taken out.

Progress is a rank's own time: it passes while the rank works or its device is idle for reasons of its own, and
stands still where the device waits for the end of a call. Beside communication it passes more slowly where kernels
do (`slowdown`). A program is a list of marks at which something happens: a call starts, the rank waits for the end
of a call, an iteration begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from wirecost.breakdown.intervals import Intervals, measure_before, merge
from wirecost.trace.compare_ranks import steady_iterations
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import NONE, Int64

Float64 = npt.NDArray[np.float64]
START, WAIT, BEGIN = 0, 1, 2
"""Kinds of marks: a call starts, the rank waits for a call's end, an iteration begins."""
_QUEUED_NS = 20_000
"""A call that starts at most this long after the end of the call before it on its stream may have been ready
earlier."""
_LEAST_RATIO, _MOST_RATIO = 1.02, 1.5


class Program(msgspec.Struct):
    """A rank's marks in order; columns of equal length.

    `what` is for START and WAIT the row of the call, for BEGIN the number of the iteration. `progress_ns` counts
    from the first mark. `ratio` is how many times as long work takes beside communication. `length_ns` is the
    progress of the measured iterations. `before` is for each call the row of the call before it on its stream, -1
    for the first.
    """

    kind: list[int]
    what: list[int]
    progress_ns: Float64
    ratio: float
    length_ns: float
    before: list[int]

    @property
    def calls(self) -> list[int]:
        """The rows of the calls that the program starts, in order."""
        return [w for k, w in zip(self.kind, self.what, strict=True) if k == START]


def measured_iterations(trace: RankTrace) -> list[int]:
    """Returns the iterations over which programs are compared: the steady ones, without the first recorded, which
    begins with the profiler's start, if there are others."""
    (rows,) = steady_iterations([trace])
    return [row for row in rows if row > 0] or list(rows)


def program(trace: RankTrace, numbers: Sequence[int]) -> Program | None:
    """Returns a rank's program from its first iteration to the end of the last one in `numbers`; None without
    them."""
    if not numbers or trace.parts is None:
        return None
    calls = trace.calls
    first, end = trace.iterations[0].window.start_ns, trace.iterations[numbers[-1]].window.end_ns
    rows = np.flatnonzero((calls.start_ns >= first) & (calls.start_ns < end))
    ratio = slowdown(trace)
    stalls, waits = _stalls(trace, rows)
    clock = _Clock(merge(stalls), merge(np.stack([calls.start_ns, calls.end_ns], axis=1)), ratio, first)
    before = _before(calls.stream)
    ready = _ready(trace, rows, clock, before)
    marks = [(int(calls.start_ns[row]), START, int(row), ready[number]) for number, row in enumerate(rows)]
    ends = clock.at(stalls[:, 1]) if len(stalls) else []
    marks += [(int(stall[1]), WAIT, row, float(at)) for stall, row, at in zip(stalls, waits, ends, strict=True)]
    begins = [trace.iterations[n].window.start_ns for n in range(numbers[-1] + 1)]
    marks += [(at, BEGIN, n, float(clock.at(np.array([at]))[0])) for n, at in enumerate([*begins, end])]
    # A wait comes after the calls that started during it, and an iteration begins before what it starts.
    marks.sort(key=lambda m: (m[0], m[1] == START))
    progress = np.maximum.accumulate(np.array([m[3] for m in marks]))
    span = clock.at(np.array([trace.iterations[numbers[0]].window.start_ns, end]))
    return Program([m[1] for m in marks], [m[2] for m in marks], progress, ratio, float(span[1] - span[0]), before)


def slowdown(trace: RankTrace) -> float:
    """Returns how many times as long a rank's kernels take beside communication; 1 where that can't be told."""
    kernels = sum(s.kernels for s in trace.slowdowns)
    ratio = sum(s.ratio * s.kernels for s in trace.slowdowns) / kernels if kernels else 1.0
    return min(ratio, _MOST_RATIO) if ratio >= _LEAST_RATIO else 1.0


class _Clock:
    """Turns a rank's time into its progress."""

    def __init__(self, stalls: Intervals, communication: Intervals, ratio: float, first_ns: int) -> None:
        self._stalls, self._communication, self._slow = stalls, communication, 1 - 1 / ratio
        self._first = np.zeros(1)
        self._first = self.at(np.array([first_ns]))

    def at(self, time_ns: Int64) -> Float64:
        stalled = measure_before(self._stalls, time_ns)
        # Stalls lie in communication, so that what is left of it passes beside work.
        beside = measure_before(self._communication, time_ns) - stalled
        return time_ns - stalled - self._slow * beside - self._first


def _stalls(trace: RankTrace, rows: Int64) -> tuple[Int64, list[int]]:
    """Returns the (start, end) during which a rank's device waits for a call's end, and the calls."""
    calls = trace.calls
    spans: list[list[int]] = []
    waits: list[int] = []
    by_end = rows[np.argsort(calls.end_ns[rows], kind="stable")]
    ends = calls.end_ns[by_end]
    for span in calls.exposed.intervals().tolist():
        at = int(np.searchsorted(ends, span[1], side="right")) - 1
        # A span that ends before any call does ends because the device computes again, so it waited for no call.
        if at >= 0 and ends[at] == span[1]:
            spans.append(span)
            waits.append(int(by_end[at]))
    return np.array(spans, dtype=np.int64).reshape(-1, 2), waits


def _before(stream: Int64) -> list[int]:
    """Returns for each call the row of the call before it on its stream, -1 for the first."""
    last: dict[int, int] = {}
    found = []
    for row, number in enumerate(stream.tolist()):
        found.append(last.get(number, NONE))
        last[number] = row
    return found


def _ready(trace: RankTrace, rows: Int64, clock: _Clock, before: list[int]) -> Float64:
    """Returns at which progress each call could start, were its stream free.

    A call that started when the one before it on its stream had ended was queued. Of calls that were queued one
    after the other, the traces tell only that they were ready between the first and the last: their progress is
    shared out by their bytes.
    """
    calls = trace.calls
    progress = clock.at(calls.start_ns[rows])
    position = {int(row): number for number, row in enumerate(rows)}
    queued = [before[row] >= 0 and calls.start_ns[row] - calls.end_ns[before[row]] <= _QUEUED_NS for row in rows]
    chain: list[int] = []
    for number, row in enumerate(rows.tolist()):
        if queued[number] and before[row] in position:
            if not chain or chain[-1] != position[before[row]]:
                _share_out(progress, chain, calls.bytes[rows])
                chain = [position[before[row]]]
            chain.append(number)
    _share_out(progress, chain, calls.bytes[rows])
    return progress


def _share_out(progress: Float64, chain: list[int], size: Int64) -> None:
    """Spreads the progress of queued calls between the first and the last of them, in place."""
    if len(chain) < 3:
        return
    weight = np.cumsum(np.maximum(size[chain[1:]], 1)).astype(float)
    first, last = progress[chain[0]], progress[chain[-1]]
    progress[chain[1:]] = np.minimum(progress[chain[1:]], first + (last - first) * weight / weight[-1])
