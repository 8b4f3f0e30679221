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
    """Returns the iterations of all ranks by name, in order of first appearance."""
    groups: dict[str, list[Iteration]] = defaultdict(list)
    for iteration in iterations:
        groups[iteration.name].append(iteration)
    return dict(groups)


def iteration_times_ns(groups: Groups) -> list[int]:
    """Returns each iteration's time in ns: the slowest rank's window."""
    return [max([i.parts.window_ns for i in group]) for group in groups]


def part_share(groups: Groups, part: str) -> Spread | None:
    """Returns a part's share of the window over iterations, each with the mean over its ranks. `part` is a field
    of `Parts`. None if no iteration's parts are known.
    """
    shares = []
    for group in groups:
        known = [
            getattr(i.parts, part) / i.parts.window_ns
            for i in group
            if i.parts.window_ns and not i.parts.unknown_ns
        ]
        if known:
            shares.append(sum(known) / len(known))
    return Spread.of(shares)


def phase_ns(groups: Groups, phase: Phase) -> Spread | None:
    """Returns a phase's time in ns over iterations, each with the mean over its ranks; None if no iteration
    records it.
    """
    times = []
    for group in groups:
        known = [i.phases[phase] for i in group if phase in i.phases]
        if known:
            times.append(sum(known) / len(known))
    return Spread.of(times)


def losses(groups: Groups) -> tuple[float, ...]:
    """Returns the global batch's loss by iteration: the mean over the ranks that have a loss."""
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
    """Returns tokens per second at the median iteration time; None if either is unknown."""
    if iteration_ns is None or not iteration_ns.median or tokens_per_iteration is None:
        return None
    return tokens_per_iteration / (iteration_ns.median * 1e-9)
