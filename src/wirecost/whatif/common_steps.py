"""Brings the steps of all ranks together: the same number means the same step of the job on every rank.

Profilers may start or stop at different steps, and a file may be cut off. Collectives that are matched over ranks
tell which steps belong together.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.whatif.nodes import NONE, RankGraph


@dataclass(frozen=True)
class CommonSteps:
    """For each rank the number of its first step that all ranks have, and how many they have in common."""

    first: list[int]
    count: int


def common_steps(ranks: Sequence[RankGraph], members: Sequence[int]) -> CommonSteps:
    """Returns the steps that all ranks have.

    Args:
        members: number of ranks of each join.
    """
    steps = [_steps_of_joins(rank, members) for rank in ranks]
    offsets = _offsets(steps)
    start = max(-offset for offset in offsets)
    end = min(len(rank.steps) - offset for rank, offset in zip(ranks, offsets, strict=True))
    if start >= end:
        return CommonSteps([0] * len(ranks), min(len(rank.steps) for rank in ranks))
    known: dict[int, int] = {}
    for found, offset in zip(steps, offsets, strict=True):
        for join, step in found.items():
            common = step - offset
            other = known.setdefault(join, common)
            if other != common:
                # From here on steps of one rank hold work of several, as where the end of a file is missing.
                end = max(min(end, other, common), start + 1)
    return CommonSteps([start + offset for offset in offsets], end - start)


def _steps_of_joins(rank: RankGraph, members: Sequence[int]) -> dict[int, int]:
    """Returns the step of each of a rank's joins with other ranks."""
    return {
        join: number
        for number, step in enumerate(rank.steps)
        for join in step.join
        if join != NONE and members[join] > 1
    }


def _offsets(steps: Sequence[dict[int, int]]) -> list[int]:
    """Returns how many steps earlier each rank begins to record than the first one; 0 where no join tells."""
    offsets: dict[int, int] = {0: 0}
    changed = True
    while changed:
        changed = False
        for rank, own in enumerate(steps):
            if rank in offsets:
                continue
            for other, offset in list(offsets.items()):
                shared = own.keys() & steps[other].keys()
                if shared:
                    later = statistics.median_low(own[join] - steps[other][join] for join in shared)
                    offsets[rank] = offset + later
                    changed = True
                    break
    return [offsets.get(rank, 0) for rank in range(len(steps))]
