"""The ideal iteration with no rank slower than the others, and what ranks, hosts, stages and operations cost.

The definitions are those of the OSDI 2025 study of stragglers (arXiv:2505.05713), on the ranks' programs
(`programs`): in the ideal every rank has the program of the fastest rank of its kind, and pipeline stages have
equal work. Ranks are of one kind if they call the same collectives with the same sizes. A cost is the ideal
iteration in which only that rank, host, stage or kind of operation keeps its own time, less the ideal.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from wirecost.trace.operation_kinds import excess_shares
from wirecost.trace.places_of_ranks import hosts, stages
from wirecost.trace.program_replay import Joined, joined_calls, replay
from wirecost.trace.programs import BEGIN, START, Program, measured_iterations, program

if TYPE_CHECKING:
    from wirecost.trace.matched_traces import MatchedTraces

_TOLERANCE = 0.03
"""Largest error of the replay, as a share, at which costs are stated."""
_WORTH = 0.01
"""Stragglers that cost less than this share of an iteration aren't named."""
_MOST_MARKS = 1_000_000
"""Marks that are replayed for costs, over all replays: about two seconds. Ranks, hosts and stages are left out
where it would take more."""
_FEWEST = 3
"""Costs that are replayed in any case."""
_MOST = 0.5
"""A kind of operation is named if it makes up this share of the costs."""

RANK, HOST, STAGE, OPERATION = "rank", "host", "stage", "operation"


class Cost(msgspec.Struct):
    """What one rank, host, pipeline stage or kind of operation (`of`, `name`) adds to the ideal iteration in ns,
    and as a share of the recorded one."""

    of: str
    name: str
    cost_ns: float
    share: float


class StragglerCosts(msgspec.Struct):
    """What stragglers cost per iteration, in ns.

    `unknown` says why nothing is known; the rest is then empty. `error` is the replay of the recording against the
    recording, as a share.
    """

    iteration_ns: float | None = None
    ideal_ns: float | None = None
    error: float | None = None
    costs: list[Cost] = []
    unknown: str | None = None

    def of(self, what: str) -> list[Cost]:
        """Returns the costs by rank, host, stage or operation, the largest first."""
        return [cost for cost in self.costs if cost.of == what]

    @property
    def sentence(self) -> str:
        """The answer in a sentence without its full stop."""
        if self.unknown is not None or self.iteration_ns is None or self.ideal_ns is None:
            return f"what slow ranks cost is unknown: {self.unknown}"
        if self.iteration_ns - self.ideal_ns < _WORTH * self.iteration_ns:
            return f"no rank is slower than the others by more than {_WORTH:.0%} of an iteration"
        text = (
            f"with no rank slower than the others: {self.ideal_ns / 1e6:.1f} ms instead of "
            f"{self.iteration_ns / 1e6:.1f} ms"
        )
        for what, word in ((RANK, "rank"), (STAGE, "stage")):
            worst = self.of(what)[:1]
            if worst and worst[0].cost_ns >= _WORTH * self.iteration_ns:
                text += f"; {word} {worst[0].name} alone costs {worst[0].cost_ns / 1e6:.1f} ms"
                break
        kinds = self.of(OPERATION)
        if kinds and kinds[0].cost_ns >= _MOST * sum(kind.cost_ns for kind in kinds) > 0:
            text += f", mostly in {kinds[0].name}"
        return text


def straggler_costs(s: MatchedTraces) -> StragglerCosts:
    """Returns what stragglers cost in a run, or why that isn't known."""
    why = _unknown(s)
    if why is not None:
        return StragglerCosts(unknown=why)
    numbers = _numbers(s)
    if not numbers or numbers[0] == 0:
        return StragglerCosts(unknown="it takes two recorded steps, of which the first begins with the profiler")
    own = [program(trace, numbers) for trace in s.traces]
    if any(p is None for p in own):
        return StragglerCosts(unknown="a rank has no device work in these steps")
    return _Costs(s, [p for p in own if p is not None], numbers).result()


def _unknown(s: MatchedTraces) -> str | None:
    if len(s.traces) < 2:
        return f"the trace is of one rank of {s.world_size}; give those of all ranks"
    if not s.matched:
        return "no communication is matched over the ranks"
    if not all(trace.iterations for trace in s.traces):
        return "the traces mark no steps (profiler.step())"
    return None


def _numbers(s: MatchedTraces) -> list[int]:
    """Returns the iterations that all ranks measure, fewer of the last ones if there are very many calls."""
    common = sorted(set.intersection(*(set(measured_iterations(t)) for t in s.traces)))
    if not common:
        return []
    calls = sum(len(t.calls) for t in s.traces)
    return common if calls * 4 <= _MOST_MARKS else common[:1]


class _Costs:
    """Replays a run with some ranks' own programs and the others' ideal ones."""

    def __init__(self, s: MatchedTraces, own: list[Program], numbers: list[int]) -> None:
        self.s, self.own, self.numbers = s, own, numbers
        self.joined: list[Joined] = joined_calls(s.traces, s.matched)
        self.begins = _begins(s)
        self.stage = stages(s)
        self.host = hosts(s.traces)
        self.kinds = self._kinds()
        fastest = [min(members, key=lambda n: own[n].length_ns) for members in self.kinds]
        self.model = {n: f for members, f in zip(self.kinds, fastest, strict=True) for n in members}
        self.scale = self._scale()
        self.ideal = [_as(own[self.model[n]], p, self.scale[n]) for n, p in enumerate(own)]

    def _kinds(self) -> list[list[int]]:
        kinds: dict[tuple, list[int]] = {}
        for n, (trace, p) in enumerate(zip(self.s.traces, self.own, strict=True)):
            calls = trace.calls
            key = (self.stage.get(n), *((calls.ops[calls.op[row]], int(calls.bytes[row])) for row in p.calls))
            kinds.setdefault(key, []).append(n)
        return list(kinds.values())

    def _scale(self) -> list[float]:
        """Returns for each rank the factor on its model's program that makes all pipeline stages' work equal."""
        by_stage: dict[int, list[float]] = {}
        for n, model in self.model.items():
            if n in self.stage:
                by_stage.setdefault(self.stage[n], []).append(self.own[model].length_ns)
        if len(by_stage) < 2 or len(self.stage) < len(self.own):
            return [1.0] * len(self.own)
        length = {stage: max(lengths) for stage, lengths in by_stage.items()}
        mean = statistics.fmean(length.values())
        return [mean / length[self.stage[n]] if length[self.stage[n]] else 1.0 for n in range(len(self.own))]

    def length(self, programs: Sequence[Program]) -> float | None:
        """Returns the mean iteration over ranks in ns; None if the programs can't be replayed."""
        begins = replay(programs, self.joined, self.begins)
        if begins is None:
            return None
        first, last = self.numbers[0], self.numbers[-1] + 1
        return statistics.fmean(b[last] - b[first] for b in begins) / (last - first)

    def result(self) -> StragglerCosts:
        first, last = self.numbers[0], self.numbers[-1]
        recorded = statistics.fmean(
            t.iterations[last].window.end_ns - t.iterations[first].window.start_ns for t in self.s.traces
        ) / (last - first + 1)
        replayed, ideal = self.length(self.own), self.length(self.ideal)
        if replayed is None or ideal is None or not recorded:
            return StragglerCosts(unknown="the ranks' calls wait for each other in a circle: are these one run's?")
        error = replayed / recorded - 1
        if abs(error) > _TOLERANCE:
            return StragglerCosts(
                error=error,
                unknown=f"replaying the calls is {100 * error:+.1f} % off the recording, so a wait is missing",
            )
        ideal = min(ideal, replayed)
        costs = [
            Cost(of, name, max(cost, 0.0), max(cost, 0.0) / replayed) for of, name, cost in self._costs(ideal)
        ]
        costs.sort(key=lambda c: ((RANK, HOST, STAGE, OPERATION).index(c.of), -c.cost_ns))
        return StragglerCosts(recorded, ideal * recorded / replayed, error, costs)

    def _costs(self, ideal: float) -> list[tuple[str, str, float]]:
        """Returns (of, name, ns), as many as the time allows: the slowest rank first, then kinds of operations,
        stages, hosts, and the other ranks."""
        marks = sum(len(p.kind) for p in self.own)
        most = max(_FEWEST, _MOST_MARKS // max(marks, 1))
        found: list[tuple[str, str, float]] = []
        for of, name, members, part in self._keepers()[:most]:
            length = self.length([part(n) if n in members else self.ideal[n] for n in range(len(self.own))])
            if length is not None:
                found.append((of, name, length - ideal))
        return found

    def _keepers(self) -> list[tuple[str, str, Collection[int], Callable[[int], Program]]]:
        """Returns what may keep its own time: (of, name, ranks, their programs)."""
        everybody = range(len(self.own))

        def whole(n: int) -> Program:
            return self.own[n]

        extra = [p.length_ns - i.length_ns for p, i in zip(self.own, self.ideal, strict=True)]
        ranks = [
            (RANK, str(self.s.traces[n].rank or 0), {n}, whole) for n in sorted(everybody, key=lambda n: -extra[n])
        ]
        shares = [excess_shares(self.s.traces[n], self.s.traces[self.model[n]], self.scale[n]) for n in everybody]
        weight: dict[str, float] = {}
        for n, share in enumerate(shares):
            for kind, part in share.items():
                weight[kind] = weight.get(kind, 0.0) + part * max(extra[n], 0.0)
        operations = [
            (OPERATION, kind, everybody, lambda n, k=kind: self._partly(n, shares[n].get(k, 0.0)))
            for kind in sorted(weight, key=lambda k: -weight[k])
        ]
        places = [
            (of, str(name), {n for n, own in where.items() if own == name}, whole)
            for of, where in ((STAGE, self.stage), (HOST, self.host))
            for name in sorted(set(where.values()))
        ]
        return [*ranks[:1], *operations, *places, *ranks[1:]]

    def _partly(self, n: int, share: float) -> Program:
        """Returns the ideal program of a rank with this share of what its own one takes longer."""
        ideal, own = self.ideal[n], self.own[n]
        anchors = [i for i, k in enumerate(ideal.kind) if k in (BEGIN, START)]
        places = {
            (k, w): i for i, (k, w) in enumerate(zip(own.kind, own.what, strict=True)) if k in (BEGIN, START)
        }
        at = [places.get((ideal.kind[i], ideal.what[i])) for i in anchors]
        known = [(i, j) for i, j in zip(anchors, at, strict=True) if j is not None]
        base = ideal.progress_ns[[i for i, _ in known]]
        more = own.progress_ns[[j for _, j in known]] - base
        progress = ideal.progress_ns + share * np.interp(ideal.progress_ns, base, more)
        return msgspec.structs.replace(ideal, progress_ns=np.maximum.accumulate(progress))


def _as(model: Program, own: Program, scale: float) -> Program:
    """Returns a model's program with the calls of the rank itself."""
    calls = dict(zip(model.calls, own.calls, strict=False))
    return Program(
        kind=model.kind,
        what=[w if k == BEGIN else calls.get(w, -1) for k, w in zip(model.kind, model.what, strict=True)],
        progress_ns=model.progress_ns * scale,
        ratio=model.ratio,
        length_ns=model.length_ns * scale,
        before=own.before,
    )


def _begins(s: MatchedTraces) -> list[float]:
    """Returns when each rank's first iteration begins in ns, on the reference clock, from the first of all."""
    number = {t.rank or 0: n for n, t in enumerate(s.traces)}
    ahead: dict[int, int] = {}
    for m in s.matched:
        for rank, row, start in zip(m.ranks, m.calls.tolist(), m.start_ns.tolist(), strict=True):
            n = number[rank]
            ahead.setdefault(n, int(s.traces[n].calls.start_ns[row]) - int(start))
    begins = [t.iterations[0].window.start_ns - ahead.get(n, 0) for n, t in enumerate(s.traces)]
    return [float(b - min(begins)) for b in begins]
