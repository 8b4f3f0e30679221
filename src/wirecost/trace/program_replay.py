"""Replays the programs of all ranks: a call ends on all its ranks a transfer after the last of them came."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from wirecost.trace.matched import Matched
from wirecost.trace.programs import BEGIN, START, Program
from wirecost.trace.rank import RankTrace

Key = tuple[int, int]  # (number of a rank, row of a call)


class Joined(msgspec.Struct):
    """A call on the ranks that take part, by (number of a rank, row).

    `transfer_ns` is for each of them the time from the last rank's start to its end. For a call in `ahead`, which
    a message's sender ended before its receiver came, it is the time from its own start.
    """

    calls: list[Key]
    transfer_ns: list[float]
    ahead: set[Key] = set()


def joined_calls(traces: Sequence[RankTrace], matched: Sequence[Matched]) -> list[Joined]:
    """Returns every call of every rank, those that are matched over ranks joined."""
    number = {t.rank or 0: n for n, t in enumerate(traces)}
    found: list[Joined] = []
    seen: set[Key] = set()
    for m in matched:
        calls = [(number[rank], int(row)) for rank, row in zip(m.ranks, m.calls, strict=True)]
        if any(key in seen for key in calls):
            continue
        seen.update(calls)
        last = int(m.start_ns.max())
        early = m.end_ns <= last if m.basis != "shortest" else np.zeros(len(calls), dtype=bool)
        times = np.where(early, m.duration_ns, m.transfer_ns).astype(float).tolist()
        ahead = {key for key, first in zip(calls, early.tolist(), strict=True) if first and len(calls) > 1}
        found.append(Joined(calls, times, ahead))
    for n, trace in enumerate(traces):
        length = (trace.calls.end_ns - trace.calls.start_ns).tolist()
        found += [Joined([(n, row)], [float(length[row])]) for row in range(len(length)) if (n, row) not in seen]
    return found


class _Rank:
    """The state of one rank: its time, how far its program is, and the ends of its calls."""

    def __init__(self, program: Program, begin_ns: float) -> None:
        self.program = program
        self.time, self.progress, self.busy = begin_ns, 0.0, -math.inf
        self.at = 0
        self.begins: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.pending: set[int] = set()

    def advance(self, progress: float) -> None:
        """Works until this progress: more slowly while a call runs."""
        need = progress - self.progress
        if need <= 0:
            return
        self.progress = progress
        if self.pending:
            self.time += need * self.program.ratio
            return
        beside = (self.busy - self.time) / self.program.ratio
        if beside <= 0:
            self.time += need
        elif need <= beside:
            self.time += need * self.program.ratio
        else:
            self.time = self.busy + need - beside


class _Replay:
    def __init__(self, programs: Sequence[Program], joined: Sequence[Joined], begins_ns: Sequence[float]) -> None:
        self.ranks = [_Rank(p, b) for p, b in zip(programs, begins_ns, strict=True)]
        started = {(n, row) for n, p in enumerate(programs) for row in p.calls}
        self.joined = joined
        self.member = {key: number for number, join in enumerate(joined) for key in join.calls}
        # A call that lies outside another rank's iterations joins those whose programs start it.
        self.missing = [sum(key in started for key in join.calls) for join in joined]
        self.start = [-math.inf] * len(joined)

    def run(self) -> bool:
        """Replays all marks; returns whether they could be."""
        patient = True
        while any(rank.at < len(rank.program.kind) for rank in self.ranks):
            moved = False
            for number, rank in enumerate(self.ranks):
                while rank.at < len(rank.program.kind) and self._mark(number, rank, patient=patient):
                    rank.at += 1
                    moved = True
                    if not patient:
                        break
            if not moved and not patient:
                return False
            patient = moved
        return True

    def _mark(self, number: int, rank: _Rank, *, patient: bool) -> bool:
        """Replays the next mark; False if what it needs isn't known yet."""
        program = rank.program
        kind, row = program.kind[rank.at], program.what[rank.at]
        if kind not in (BEGIN, START):
            if row in rank.pending:
                return False
            rank.advance(program.progress_ns[rank.at])
            rank.time = max(rank.time, rank.ends.get(row, -math.inf))
            return True
        before = program.before[row] if kind == START else -1
        # Whether work runs beside a call isn't known before the call's end is.
        if before in rank.pending or (rank.pending and program.ratio != 1.0 and patient):
            return False
        rank.advance(program.progress_ns[rank.at])
        if kind == BEGIN:
            rank.begins[row] = rank.time
        else:
            self._start((number, row), max(rank.time, rank.ends.get(before, -math.inf)))
        return True

    def _start(self, key: Key, time_ns: float) -> None:
        number = self.member[key]
        join = self.joined[number]
        self.start[number] = max(self.start[number], time_ns)
        self.missing[number] -= 1
        rank = self.ranks[key[0]]
        if key in join.ahead:
            self._end(key, time_ns + join.transfer_ns[join.calls.index(key)])
        else:
            rank.pending.add(key[1])
        if self.missing[number]:
            return
        for other, transfer in zip(join.calls, join.transfer_ns, strict=True):
            if other not in join.ahead and other[1] in self.ranks[other[0]].pending:
                self._end(other, self.start[number] + transfer)

    def _end(self, key: Key, time_ns: float) -> None:
        rank = self.ranks[key[0]]
        rank.pending.discard(key[1])
        rank.ends[key[1]] = time_ns
        rank.busy = max(rank.busy, time_ns)


def replay(
    programs: Sequence[Program], joined: Sequence[Joined], begins_ns: Sequence[float]
) -> list[dict[int, float]] | None:
    """Returns for each rank when its iterations begin, by their number; after the last one's its end.

    Returns None if ranks wait for each other in a circle.
    """
    state = _Replay(programs, joined, begins_ns)
    return [rank.begins for rank in state.ranks] if state.run() else None
