"""Statistics over iterations, each of which several ranks ran.

`groups` are a breakdown's iterations by name: each group holds one iteration of all ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean

from wirecost.breakdown.iteration import Iteration, Phase
from wirecost.breakdown.statistics import Spread

Groups = Collection[Sequence[Iteration]]


def by_iteration(iterations: Iterable[Iteration]) -> dict[str, list[Iteration]]:
    """Iterations of all ranks by name, in order of first appearance."""
    groups: dict[str, list[Iteration]] = defaultdict(list)
    for iteration in iterations:
        groups[iteration.name].append(iteration)
    return dict(groups)


def iteration_times_ns(groups: Groups) -> list[int]:
    """Each iteration's time: the slowest rank's window."""
    return [max([i.parts.window_ns for i in group]) for group in groups]


def part_share(groups: Groups, part: str) -> Spread | None:
    """A part's share of the window, the mean over ranks of each iteration. `part` is a field of `Parts`."""
    shares = []
    for group in groups:
        known = [getattr(i.parts, part) / i.parts.window_ns for i in group if i.parts.window_ns]
        if known:
            shares.append(sum(known) / len(known))
    return Spread.of(shares)


def phase_ns(groups: Groups, phase: Phase) -> Spread | None:
    """A phase's time, the mean over ranks of each iteration; None where no iteration records it."""
    times = []
    for group in groups:
        known = [i.phases[phase] for i in group if phase in i.phases]
        if known:
            times.append(sum(known) / len(known))
    return Spread.of(times)


def losses(groups: Groups) -> tuple[float, ...]:
    """The global batch's loss by iteration: the mean over the ranks that know one."""
    known = [[i.loss for i in group if i.loss is not None] for group in groups]
    return tuple(fmean(values) for values in known if values)


def expert_imbalance(groups: Groups) -> Spread | None:
    """Returns the largest load of a rank's experts over the mean of all ranks, over iterations.

    The load is that of all layers. None where no iteration has expert parallelism.
    """
    ratios = []
    for group in groups:
        loads = [i.expert_load for i in group if i.expert_load is not None]
        if loads and (mean := fmean(loads)):
            ratios.append(max(loads) / mean)
    return Spread.of(ratios)


def tokens_per_s(tokens_per_iteration: int | None, iteration_ns: Spread | None) -> float | None:
    """Tokens over the median iteration time; None where either is unknown."""
    if iteration_ns is None or not iteration_ns.median or tokens_per_iteration is None:
        return None
    return tokens_per_iteration / (iteration_ns.median * 1e-9)
