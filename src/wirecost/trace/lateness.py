"""Finds the ranks that come late to collectives by themselves, and the job's gain if they came on time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from wirecost.trace.compare_ranks import steady_iterations
from wirecost.trace.matched import SHORTEST, Matched
from wirecost.trace.matched_traces import MatchedTraces
from wirecost.trace.recorded import Int64

# A rank counts as late if its own lateness is at least this share of the latest rank's.
_AS_LATE = 0.5
# Late ranks explain the waits if this share of all delays would be gone without them; below it ranks take turns.
_EXPLAINED = 0.6
# They must also have caused this share of the other ranks' waits.
_CAUSED = 0.5


class Lateness(msgspec.Struct):
    """The ranks that the others wait for.

    `ranks` come late by themselves; it is empty if ranks take turns or none is late. `own_ns` is each rank's own
    lateness, summed over the collectives. `late` is the number of collectives to which a rank came late, of the
    `collectives` that it took part in. `gain_ns` is how much earlier the collectives of an iteration could start
    on average, summed over them, if `ranks` came no later than the last of the other ranks.
    """

    ranks: list[int]
    own_ns: dict[int, int]
    late: dict[int, int]
    collectives: dict[int, int]
    gain_ns: float


class _Arrivals(msgspec.Struct):
    """When the ranks came to a collective, in ns; what other ranks made each wait before is taken out."""

    matched: Matched
    own: Int64

    @property
    def behind(self) -> Int64:
        """How far each rank is behind the lower median of all."""
        return np.maximum(self.own - np.sort(self.own)[(len(self.own) - 1) // 2], 0)

    def gain(self, ranks: Sequence[int]) -> int:
        """Returns how much earlier the last rank would come if these came no later than the last of the others."""
        others = np.array([r not in ranks for r in self.matched.ranks])
        return int(self.own.max() - self.own[others].max()) if others.any() and not others.all() else 0


def lateness(s: MatchedTraces) -> Lateness:
    """Returns the ranks' own lateness over all matched collectives but the first after the profiler started.

    A pipeline's bubble counts for no rank. The arrival of a rank at a collective is compared with the lower median
    of all arrivals. The rank's waits in other collectives since its last collective in the same group are
    subtracted first, because a rank that is late after waiting for another rank is not late by itself.
    """
    listed = _arrivals(s)
    own: dict[int, int] = {}
    late: dict[int, int] = {}
    count: dict[int, int] = {}
    for a in listed:
        for rank, value in zip(a.matched.ranks, a.behind.tolist(), strict=True):
            own[rank] = own.get(rank, 0) + value
            late[rank] = late.get(rank, 0) + (value > 0)
            count[rank] = count.get(rank, 0) + 1
    blamed = _blamed(own, listed)
    if not _caused(s, blamed):
        blamed = []
    complete = _whole_iterations(s)
    gain = sum(a.gain(blamed) for a in listed if a.matched.iteration in complete) / max(len(complete), 1)
    return Lateness(ranks=blamed, own_ns=own, late=late, collectives=count, gain_ns=gain)


def _arrivals(s: MatchedTraces) -> list[_Arrivals]:
    waits, listed = _Waits(s), []
    before: dict[tuple[str, tuple[int, ...]], Matched] = {}
    for m in sorted(s.matched, key=lambda m: (m.group, m.ranks, m.index)):
        previous = before.get((m.group, m.ranks))
        before[m.group, m.ranks] = m
        if m.first or m.bubble or len(m.ranks) < 2:
            continue
        # If clocks aren't aligned, durations are compared instead, because all ranks end together.
        came = m.duration_ns.max() - m.duration_ns if m.basis == SHORTEST else m.start_ns - m.start_ns.min()
        own = came - waits.between(m, previous)
        # Without its waits a rank is at most as early as the typical rank, so no other rank becomes late.
        typical = np.sort(came)[(len(came) - 1) // 2]
        listed.append(_Arrivals(m, np.where(came > typical, np.clip(own, typical, came), came)))
    return listed


def _blamed(own: dict[int, int], listed: Sequence[_Arrivals]) -> list[int]:
    """Returns the ranks that stand out as late: at most half of them, without whom most of the delay would be
    gone."""
    if not own or max(own.values()) <= 0:
        return []
    most = max(own.values())
    ranks = sorted(r for r, value in own.items() if value >= _AS_LATE * most)
    delay = sum(int(a.behind.max()) for a in listed)
    if 2 * len(ranks) > len(own) or sum(a.gain(ranks) for a in listed) < _EXPLAINED * delay:
        return []
    return ranks


def _caused(s: MatchedTraces, ranks: Sequence[int]) -> bool:
    """Returns whether these ranks were the first cause of most of the other ranks' waiting."""
    cost = sum(x.cost_ns for x in s.stragglers)
    return sum(x.cost_ns for x in s.stragglers if x.rank in ranks) >= _CAUSED * cost


def _whole_iterations(s: MatchedTraces) -> set[str | None]:
    """Returns the iterations in which every collective counts.

    The iterations with the first collective after the profiler started are excluded if there are others. Without
    iterations the recorded window counts as one, under None.
    """
    complete_iterations: set[str | None] = {
        t.iterations[n].window.name
        for t, rows in zip(s.traces, steady_iterations(s.traces), strict=True)
        for n in rows
    }
    if not complete_iterations:
        return {None}
    return (complete_iterations - {m.iteration for m in s.matched if m.first}) or complete_iterations


class _Waits:
    """What each rank had waited in exposed communication at the start and at the end of each of its calls."""

    def __init__(self, s: MatchedTraces) -> None:
        self._at_start: dict[int, list[int]] = {}
        self._at_end: dict[int, list[int]] = {}
        for trace, waits in zip(s.traces, s.waits, strict=True):
            calls = trace.calls
            length = np.maximum(calls.end_ns - calls.start_ns, 1)
            exposed = np.where(waits > 0, waits, 0) * (calls.exposed_ns / length)
            sums = np.concatenate([[0], np.cumsum(exposed.astype(np.int64))])
            for table, times in ((self._at_start, calls.start_ns), (self._at_end, calls.end_ns)):
                table[trace.rank or 0] = sums[np.searchsorted(calls.start_ns, times, side="left")].tolist()

    def between(self, m: Matched, previous: Matched | None) -> Int64:
        """Returns each rank's exposed waits in other collectives from the end of `previous` to its arrival at
        `m`."""
        before = [0] * len(m.ranks)
        if previous is not None:
            ended = zip(m.ranks, previous.calls.tolist(), strict=True)
            before = [self._at_end[rank][call] for rank, call in ended]
        waits = [
            max(0, self._at_start[rank][call] - since)
            for rank, call, since in zip(m.ranks, m.calls.tolist(), before, strict=True)
        ]
        return np.array(waits, dtype=np.int64)


def named(ranks: Iterable[int], most: int = 4) -> str:
    """Returns `rank 3`, `ranks 1 and 5`, `ranks 0, 2, 4, 6 and 12 more`."""
    listed = [str(r) for r in ranks]
    if len(listed) == 1:
        return f"rank {listed[0]}"
    if len(listed) > most + 1:
        return f"ranks {', '.join(listed[:most])} and {len(listed) - most} more"
    return f"ranks {', '.join(listed[:-1])} and {listed[-1]}"
