"""Covers all pairs of settings with few cases, deterministically."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Case = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]
"""Two settings, as (factor, value), in the order of the factors."""

CANDIDATES = 30
"""Number of cases among which the one that covers the most pairs is chosen."""
TRIES = 400
"""Number of completions after which a pair counts as impossible."""


@dataclass(frozen=True)
class Cover:
    """Cases that together contain every possible pair of settings.

    Attributes:
        refused: why each other pair is impossible, here with the first value of every other factor.
    """

    cases: list[Case]
    refused: dict[Pair, str]


def pairs_of(case: Mapping[str, str]) -> set[Pair]:
    """Returns all pairs of settings in a case."""
    return set(itertools.combinations(case.items(), 2))


def cover_pairs(
    factors: Mapping[str, Sequence[str]], refusal: Callable[[Case], str | None], seed: int = 0
) -> Cover:
    """Returns cases that cover every pair of values of different factors for which a case is possible.

    Args:
        factors: the values of each factor. A value that is repeated is chosen more often.
        refusal: why a case is impossible, or None if it is possible.
    """
    draw = random.Random(seed)
    uncovered = {
        pair: None
        for (a, of_a), (b, of_b) in itertools.combinations(factors.items(), 2)
        for pair in itertools.product(itertools.product([a], of_a), itertools.product([b], of_b))
    }
    cover = Cover([], {})
    while uncovered:
        pair = next(iter(uncovered))
        candidates: list[Case] = []
        for _ in range(TRIES):
            case = {name: draw.choice(values) for name, values in factors.items()} | dict(pair)
            if refusal(case) is None:
                candidates.append(case)
            if len(candidates) == CANDIDATES:
                break
        if not candidates:
            plainest = {name: values[0] for name, values in factors.items()} | dict(pair)
            cover.refused[pair] = refusal(plainest) or "impossible with every value of the other factors"
            del uncovered[pair]
            continue
        best = max(candidates, key=lambda case: len(pairs_of(case) & uncovered.keys()))
        cover.cases.append(best)
        for covered in pairs_of(best) & uncovered.keys():
            del uncovered[covered]
    return cover
