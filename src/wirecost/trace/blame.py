"""Finds the ranks that are late by themselves, by following waits back to the rank that caused them first.

A rank that comes late to a collective may itself have waited for another rank in another collective. The part of
its delay that its own waits explain is passed on to the ranks that it waited for. Only the rest is its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from wirecost.trace.matched import Matched
from wirecost.trace.rank import RankTrace

_BEFORE = -(2**62)
_MOST_WAITS = 100_000
"""Waits that are kept at least, before those are dropped that can't explain a later one."""


class Straggler(msgspec.Struct):
    """The lateness of one rank, over its collectives other than the first after the profiler started.

    `late` is the number of collectives to which it came last by more than the uncertainty of the clocks and its
    own waits explain. `cost_ns` is the sum of what the other ranks waited for it, directly or through ranks that
    it delayed. `delay_ns` is the sum of its delays after the next-to-last rank: the time that the job would gain
    if it came with the others. `passed_on_ns` is what the others waited for it only because it had waited for
    another rank itself.
    """

    rank: int
    late: int
    collectives: int
    cost_ns: int
    delay_ns: int
    passed_on_ns: int


class _Past(msgspec.Struct):
    """The waits of one rank so far, in order of their start."""

    starts: list[int]
    sums: list[int]  # waits before each of them, and all at the end
    causes: list[dict[int, float]]  # ns of each wait by the rank that caused it

    def between(self, start_ns: int, end_ns: int) -> tuple[int, range]:
        """Returns (summed waits, their positions) of those that started in [start_ns, end_ns)."""
        lo, hi = bisect_left(self.starts, start_ns), bisect_left(self.starts, end_ns)
        return self.sums[hi] - self.sums[lo], range(lo, hi)

    def add(self, start_ns: int, wait_ns: int, causes: dict[int, float]) -> None:
        at = bisect_right(self.starts, start_ns)
        if at < len(self.starts):  # out of order due to a clock's error: keep the order
            start_ns = self.starts[-1]
        self.starts.append(start_ns)
        self.sums.append(self.sums[-1] + wait_ns)
        self.causes.append(causes)

    def forget(self, before_ns: int) -> None:
        """Drops the waits that started before a time."""
        at = bisect_left(self.starts, before_ns)
        del self.starts[:at], self.sums[:at], self.causes[:at]


def stragglers(traces: Sequence[RankTrace], matched: Sequence[Matched]) -> list[Straggler]:
    """Returns the stragglers, the most costly first. The list includes ranks that were never last.

    The bubble of a pipeline is not blamed on a rank, but it still explains why ranks are late after it.
    """
    by_rank: dict[int, Straggler] = {}
    past: dict[int, _Past] = defaultdict(lambda: _Past([], [0], []))
    exposed = {t.rank or 0: t for t in traces}
    together = _Together()
    kept = 0
    for m in sorted(matched, key=lambda m: int(m.start_ns.max())):
        ranks = np.array(m.ranks)
        own_total: dict[int, float] = defaultdict(float)
        additions = []
        m.caused_by = np.array(m.waits_for)
        for row in np.flatnonzero(m.wait_ns > 0):
            wait, culprit = int(m.wait_ns[row]), int(m.waits_for[row])
            if culprit < 0:
                continue
            late = int(np.flatnonzero(ranks == culprit)[0])
            causes = _causes(past, m, int(row), late, together.last(m.ranks[row], culprit))
            m.caused_by[row] = max(causes, key=lambda rank: causes[rank], default=culprit)
            additions.append((m.ranks[row], int(m.start_ns[row]), _felt(exposed, m, int(row)), causes))
            if not m.first and not m.bubble:
                for rank, share in causes.items():
                    _entry(by_rank, rank).cost_ns += round(share)
                own_total[culprit] += causes.get(culprit, 0.0)
                _entry(by_rank, culprit).passed_on_ns += round(wait - causes.get(culprit, 0.0))
        if not m.first and not m.bubble:
            for rank in m.ranks:
                _entry(by_rank, rank).collectives += 1
            if own_total.get(m.last_rank, 0.0) > m.uncertainty_ns:
                own = own_total[m.last_rank] / max(m.cost_ns, 1)
                _entry(by_rank, m.last_rank).late += 1
                _entry(by_rank, m.last_rank).delay_ns += round(m.delay_ns * min(own, 1.0))
        for rank, start, felt, causes in additions:
            past[rank].add(start, felt, causes)
        together.add(m)
        kept += len(additions)
        if kept > _MOST_WAITS and len(set(m.ranks)) == len(traces):
            # No pair of ranks looks further back than to its last common collective.
            kept = 0
            for history in past.values():
                history.forget(int(m.end_ns.max()))
    return sorted(by_rank.values(), key=lambda s: (-s.cost_ns, s.rank))


class _Together:
    """When ranks were last brought together by a collective."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[frozenset[int], int]] = defaultdict(dict)

    def add(self, m: Matched) -> None:
        members, end_ns = frozenset(m.ranks), int(m.end_ns.max())
        for rank in m.ranks:
            self._ends[rank][members] = end_ns

    def last(self, first: int, second: int) -> int:
        """Returns the end of the last collective of both ranks; a time before all of them without any."""
        return max((end for members, end in self._ends[first].items() if second in members), default=_BEFORE)


def _entry(by_rank: dict[int, Straggler], rank: int) -> Straggler:
    return by_rank.setdefault(rank, Straggler(rank, 0, 0, 0, 0, 0))


def _felt(traces: dict[int, RankTrace], m: Matched, row: int) -> int:
    """Returns the exposed part of a wait, which can delay later work."""
    trace, call = traces[m.ranks[row]], int(m.calls[row])
    duration = int(m.end_ns[row] - m.start_ns[row])
    if duration <= 0:
        return 0
    return round(int(m.wait_ns[row]) * int(trace.calls.exposed_ns[call]) / duration)


def _causes(past: dict[int, _Past], m: Matched, row: int, late: int, since_ns: int) -> dict[int, float]:
    """Returns the wait of a row in ns by the rank that caused it: the late rank, or those that it waited for
    itself."""
    wait, culprit = int(m.wait_ns[row]), int(m.waits_for[row])
    own_wait, _ = past[m.ranks[row]].between(since_ns, int(m.start_ns[row]))
    its_wait, positions = past[culprit].between(since_ns, int(m.start_ns[late]))
    explained = min(max(its_wait - own_wait, 0), wait)
    causes: dict[int, float] = {culprit: float(wait - explained)}
    if explained:
        history = past[culprit]
        for at in positions:
            felt = history.sums[at + 1] - history.sums[at]
            total = sum(history.causes[at].values())
            if not felt or not total:
                continue
            for rank, share in history.causes[at].items():
                causes[rank] = causes.get(rank, 0.0) + explained * felt / its_wait * share / total
    return {rank: ns for rank, ns in causes.items() if ns > 0}
