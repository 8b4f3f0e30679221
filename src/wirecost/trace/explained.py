"""Assigns one cause to each instant of exposed communication, over all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from wirecost.breakdown.intervals import measure_before
from wirecost.trace.causes import BUBBLE, CAUSES, CODES, LATE, UNCLEAR, WAITING
from wirecost.trace.matched import Matched
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import NONE, Int64


class Cause(msgspec.Struct, frozen=True):
    """One cause of exposed communication: `exposed_ns` in `calls` calls, summed over all ranks and iterations.

    `share` is its share of the exposed communication that all causes explain together. `rank` is the rank that is
    waited for most, or whose host is late most. `host_call` is the call in which that host waited, if any.
    """

    code: str
    text: str
    exposed_ns: int
    share: float
    calls: int
    rank: int | None
    host_call: str | None


class Explained:
    """The exposed time of every call by cause."""

    def __init__(self, traces: Sequence[RankTrace], matched: Sequence[Matched]) -> None:
        self._traces = list(traces)
        self._numbers = {t.rank or 0: n for n, t in enumerate(self._traces)}
        self._waited = [np.zeros(len(t.calls), dtype=np.int64) for t in self._traces]
        self._for = [np.full(len(t.calls), NONE, dtype=np.int64) for t in self._traces]
        self._bubble = [np.zeros(len(t.calls), dtype=bool) for t in self._traces]
        for m in matched:
            for at, (rank, call) in enumerate(zip(m.ranks, m.calls, strict=True)):
                number = self._numbers[rank]
                self._waited[number][call] = m.wait_ns[at]
                self._for[number][call] = m.caused_by[at] if len(m.caused_by) else m.waits_for[at]
                self._bubble[number][call] = m.bubble
        self._exposed_wait = [_exposed_wait(t, wait) for t, wait in zip(self._traces, self._waited, strict=True)]

    def calls_in_iterations(self) -> list[tuple[int, int]]:
        """Returns (number of the trace, row) of every call that starts in an iteration, or in a trace without
        any."""
        return [
            (n, row)
            for n, t in enumerate(self._traces)
            for row in range(len(t.calls))
            if not t.iterations or t.calls.iteration[row] >= 0
        ]

    def causes(self, calls: Iterable[tuple[int, int]]) -> list[Cause]:
        """Returns the causes of the exposed time of some calls, the largest first; they sum to it."""
        time: dict[str, int] = defaultdict(int)
        count: dict[str, set[tuple[int, int]]] = defaultdict(set)
        ranks: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        host: dict[str, int] = defaultdict(int)
        for number, row in calls:
            trace = self._traces[number]
            exposed = int(trace.calls.exposed_ns[row])
            if exposed <= 0:
                continue
            waited = min(int(self._exposed_wait[number][row]), exposed)
            cause = int(trace.calls.cause[row])
            own = CODES[cause] if cause >= 0 else UNCLEAR
            for code, part in (
                (BUBBLE if self._bubble[number][row] else WAITING, waited),
                (own, exposed - waited),
            ):
                if not part:
                    continue
                time[code] += part
                count[code].add((number, row))
                if code == WAITING:
                    ranks[code][int(self._for[number][row])] += part
                elif code == LATE:
                    ranks[code][trace.rank or 0] += part
                    if trace.calls.host_call[row] >= 0:
                        host[trace.calls.host_calls[trace.calls.host_call[row]]] += part
        total = sum(time.values())
        totals = [
            Cause(
                code=code,
                text=CAUSES[code],
                exposed_ns=ns,
                share=ns / total,
                calls=len(count[code]),
                rank=_most(ranks[code]),
                host_call=max(host, key=lambda k: host[k]) if code == LATE and host else None,
            )
            for code, ns in time.items()
        ]
        return sorted(totals, key=lambda c: (-c.exposed_ns, c.code))


def _most(weights: dict[int, int]) -> int | None:
    known = {rank: ns for rank, ns in weights.items() if rank >= 0}
    return max(known, key=lambda rank: known[rank]) if known else None


def _exposed_wait(trace: RankTrace, wait: Int64) -> Int64:
    """Returns the exposed part of each call's wait that is its own."""
    calls = trace.calls
    begin = calls.own_start_ns
    until = np.clip(calls.start_ns + wait, begin, np.maximum(calls.end_ns, begin))
    exposed = calls.exposed.intervals()
    return measure_before(exposed, until) - measure_before(exposed, begin)
