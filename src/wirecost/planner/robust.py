"""How the choice of a plan holds if the GPUs or the links are slower or faster than the model assumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wirecost.costmodel.inputs import Machine
from wirecost.planner.choices import Choice
from wirecost.planner.parts import totals_of
from wirecost.planner.search import Found, machines_of

CHANGE = 0.2
"""The change of bandwidth and compute in either direction."""


@dataclass(frozen=True)
class Case:
    """One changed machine.

    Attributes:
        name: what is changed.
        best: the fastest plan there.
        total_s: its iteration time in seconds.
        regrets: how much slower than it the plans in question are there, as shares.
    """

    name: str
    best: Choice
    total_s: float
    regrets: tuple[float, ...]


def cases(found: Found, places: Sequence[int]) -> list[Case]:
    """Returns what becomes of the plans at `places` with bandwidth and compute 20 % lower and higher.

    Only plans within 1 / (1 - 20 %) of the fastest can become the fastest: every time lies between those of all
    parts changed and of none.
    """
    limit = int(np.searchsorted(found.total_s, found.total_s[0] / (1 - CHANGE) * (1 + 1e-9), side="right"))
    candidates = np.unique(np.concatenate([np.arange(limit), np.asarray(places, dtype=np.int64)]))
    positions = np.searchsorted(candidates, places)
    plain = machines_of(found.space.question)
    results = []
    for name, change in (
        ("bandwidth -20 %", lambda m: with_bandwidth_times(m, 1 - CHANGE)),
        ("bandwidth +20 %", lambda m: with_bandwidth_times(m, 1 + CHANGE)),
        ("compute -20 %", lambda m: m.slowed(1 / (1 - CHANGE))),
        ("compute +20 %", lambda m: m.slowed(1 / (1 + CHANGE))),
    ):
        changed: dict[int, Machine] = {}

        def machines(stack: int, micro_batch: int, change=change, changed=changed) -> Machine:  # type: ignore[no-untyped-def]
            machine = plain(stack, micro_batch)
            return changed.setdefault(id(machine), change(machine))

        total = totals_of(found, candidates, machines)
        best = int(np.argmin(total))
        regrets = tuple(float(total[p] / total[best] - 1) for p in positions)
        results.append(Case(name, found.choice(int(candidates[best])), float(total[best]), regrets))
    return results


def with_bandwidth_times(machine: Machine, factor: float) -> Machine:
    """Returns the machine with links of `factor` times the rate. Measured collectives don't count for it."""
    return replace(machine, intra_Bps=machine.intra_Bps * factor, node_Bps=machine.node_Bps * factor, curves=())
