"""Whether two plans can be told apart: the interval of the ratio of their times.

Both plans run the same model on the same GPUs, so that the errors of parts which they share cancel. What is left
is the error of the parts in which they differ, each a share of the difference in seconds, and an error that any
other set of degrees has. The shares are such that intervals of 90 % hold about nine in ten pairs of measured plans
of one model, GPUs and batch (benchmarks/planner.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wirecost.planner.parts import PARTS, parts_of
from wirecost.planner.search import Found

PART_ERRORS = {
    "compute_s": 0.1,
    "host_s": 0.2,
    "bubble_s": 0.2,
    "tensor_s": 0.3,
    "context_expert_s": 0.6,
    "pipeline_s": 0.4,
    "gradient_s": 0.6,
    "parameter_s": 0.6,
    "embedding_sync_s": 0.6,
    "optimizer_s": 0.2,
    "straggler_s": 0.6,
    "other_s": 0.2,
}
"""Half width of the 90 % interval of a part, as a share of its seconds. That of context and expert parallelism is
by judgement: no table holds plans that differ in them."""
OTHER_DEGREES = 0.13
"""Half width that plans with other degrees, micro-batch or recomputation have besides."""
OTHER_STACK = 0.2
"""Half width that plans under another stack have besides: the spread of a fitted stack."""
UNFITTED = 0.28
"""Half width that context parallelism adds where the other plan has none: no table holds plans of one job that
differ in it."""
_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "mb")
MOST = 50_000
"""Most plans that are compared with one."""
NEAR = 1.8
"""Only plans within this factor of a plan's time are compared with it. The widest interval is smaller."""


class Distances:
    """Compares plans of a search, of which the parts are computed once."""

    def __init__(self, found: Found, places: Sequence[int] | None = None) -> None:
        """Compares the plans at `places`, or those near the fastest."""
        self.found = found
        if places is None:
            near = int(np.searchsorted(found.total_s, found.total_s[0] * NEAR)) if len(found) else 0
            places = range(min(near, MOST))
        self.places = np.array(sorted(set(places)), dtype=np.int64)
        self.seconds = parts_of(found, self.places)
        self._columns = {name: found.column(name)[self.places] for name in (*_DEGREES, "recompute", "sp")}
        self._stack = np.array([stack for _, stack in found.modes] or [0])[found.mode[self.places]]
        self._errors = np.array([PART_ERRORS[name] for name in PARTS])

    def half_width(self, first: int, second: int) -> float:
        """Returns half the width of the interval for the plans at two places."""
        return float(self.half_widths(first)[int(np.searchsorted(self.places, second))])

    def half_widths(self, place: int) -> npt.NDArray[np.float64]:
        """Returns half the width, in natural logarithms, of the 90 % interval of the ratio between the times of
        each plan of `places` and the plan at `place`, one of them."""
        total, own = self.found.total_s, int(np.searchsorted(self.places, place))
        scale = np.sqrt(total[self.places] * total[place])
        parts = (self.seconds - self.seconds[own]) * self._errors / scale[:, None]
        variance = np.sum(parts**2, axis=1)
        other = np.zeros(len(self.places), dtype=bool)
        for name in (*_DEGREES, "recompute", "sp"):
            other |= self._columns[name] != self._columns[name][own]
        variance += other * OTHER_DEGREES**2
        variance += (self._stack != self._stack[own]) * OTHER_STACK**2
        context = self._columns["cp"] > 1
        variance += (context != context[own]) * UNFITTED**2
        return np.sqrt(variance)

    def alike(self, place: int) -> npt.NDArray[np.int64]:
        """Returns the places of plans that can't be told apart from the one at `place`, itself included."""
        ratio = np.abs(np.log(self.found.total_s[self.places] / self.found.total_s[place]))
        return self.places[ratio <= self.half_widths(place)]

    def spread_out(self, members: npt.NDArray[np.int64], count: int) -> list[int]:
        """Returns up to `count` of the plans that differ most from each other, the first member first. Their
        measurements say most about the others."""
        chosen = [int(members[0])]
        shares = self.seconds[members] / self.found.total_s[members, None]
        nearest = np.full(len(members), np.inf)
        while len(chosen) < min(count, len(members)):
            last = self.seconds[chosen[-1]] / self.found.total_s[chosen[-1]]
            nearest = np.minimum(nearest, np.abs(shares - last).sum(axis=1))
            # A plan is worth measuring if it differs much and is fast.
            worth = nearest - np.log(self.found.total_s[members] / self.found.total_s[members[0]])
            best = int(np.argmax(worth))
            if nearest[best] <= 1e-9:
                break
            chosen.append(int(members[best]))
        return chosen


def grouped(distances: Distances, places: Sequence[int]) -> list[int]:
    """Returns the number of the group of each of the places, which run from fast to slow. A group is the plans
    that can't be told apart from its fastest."""
    groups: dict[int, int] = {}
    number = 0
    for place in places:
        if place in groups:
            continue
        number += 1
        groups[place] = number
        if place < len(distances.places):
            alike = set(distances.alike(place).tolist())
            for other in places:
                if other in alike:
                    groups.setdefault(other, number)
    return [groups[place] for place in places]
