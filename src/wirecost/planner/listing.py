"""Chooses the listed plans of a search: the best of each set of degrees, the simplest, and the Pareto front."""

from __future__ import annotations

import numpy as np

from wirecost.planner.search import Found

LEVEL = 1e-4
"""Plans whose times differ by less than this share are the same to the formulas. The simpler one is listed."""


def best_places(found: Found, top: int, variants: bool) -> list[int]:
    """Returns the places of the plans that are listed: all, or the best of each set of TP, PP, CP and EP. Of plans
    that take the same time, and differ only in how context and data parallelism share the ranks, the one with the
    fewest kinds of parallelism stands for all."""
    if variants:
        return list(range(min(top, len(found))))
    kinds = kinds_of_parallelism(found)
    degrees = np.stack([found.column(name) for name in ("tp", "pp", "ep", "cp")], axis=1)
    stacks = np.array([stack for _, stack in found.modes])[found.mode]
    places: list[int] = []
    known: dict[tuple[float, ...], int] = {}
    for place in range(len(found)):
        key = (*degrees[place].tolist(), float(stacks[place]))
        without_context = (*key[:3], -1.0, key[4])
        earlier = known.get(without_context)
        if earlier is not None and found.total_s[place] <= found.total_s[places[earlier]] * (1 + LEVEL):
            if kinds[place] < kinds[places[earlier]]:
                places[earlier] = place
            known[key] = earlier
            continue
        if key in known:
            continue
        if len(places) == top:
            break
        known[key] = known[without_context] = len(places)
        places.append(place)
    return sorted(places)


def kinds_of_parallelism(found: Found) -> np.ndarray:
    """Returns how many kinds of parallelism and unusual options each plan has, of shape (plans,)."""
    kinds = np.zeros(len(found))
    for name in ("tp", "pp", "vpp", "cp", "ep"):
        kinds += found.column(name) > 1
    for name in ("sharding_group", "recompute", "placement"):
        kinds += found.column(name) > 0
    several = found.column("dp") * found.column("cp") > 1
    return kinds + (several & (found.column("overlap") == 0))


def simplest(found: Found, places: np.ndarray) -> int:
    """Returns the place, among `places`, of the fastest plan with the fewest kinds of parallelism and options."""
    return int(places[int(np.argmin(kinds_of_parallelism(found)[places]))])


def pareto(found: Found) -> list[int]:
    """Returns the places of the plans than which no other is both as fast and as small."""
    least = np.minimum.accumulate(found.memory_bytes)
    before = np.concatenate([[np.inf], least[:-1]])
    return [int(place) for place in np.flatnonzero(found.memory_bytes < before)]
