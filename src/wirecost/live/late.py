"""Names the rank that the others wait for, once there is enough evidence that it is late."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import cache

from wirecost.live.marks import IterationTimes

LATE_SHARE = 0.1
"""Share of an iteration that the other ranks must wait for a rank before it counts as late in this iteration."""
MOST_BY_CHANCE = 0.002
"""Greatest probability that chance makes any rank late in so many iterations of a window."""
LEAST_S = 0.4
"""Time in seconds that the iterations must span. A shorter delay may be one process that takes a core."""
LENGTHS = (10, 20)
"""Numbers of the latest iterations in which a late rank is looked for. Short iterations need more of them."""

Iteration = Sequence[IterationTimes]
"""One iteration of all ranks, by rank."""


def late_rank(iterations: Sequence[Iteration]) -> int | None:
    """Returns the rank that is late in so many iterations that chance doesn't explain it, or None.

    A rank is late in an iteration if the median of the other ranks waits at least `LATE_SHARE` of it longer than
    the rank does. Chance makes a rank late in at most half of the iterations, so that the number of late ones is
    compared with a binomial distribution (a sign test, with Bonferroni's correction for the number of ranks).

    Args:
        iterations: the iterations of all ranks. Those with an unknown tail count as not late.
    """
    if sum(max(rank.iteration_s for rank in i) for i in iterations) < LEAST_S:
        return None
    late: Counter[int] = Counter()
    for iteration in iterations:
        late.update(_late_in(iteration))
    if not late:
        return None
    rank, times = max(late.items(), key=lambda item: (item[1], -_median_tail_s(iterations, item[0])))
    return rank if times >= least_late(len(iterations), len(iterations[0])) else None


def latest_late_rank(iterations: Sequence[Iteration]) -> int | None:
    """Returns the rank that is late in the latest iterations, or None.

    The shortest window that proves it counts, and a window that is shorter than `LEAST_S` is extended.
    """
    span_s, spanning = 0.0, 0
    for iteration in reversed(iterations):
        span_s += max(rank.iteration_s for rank in iteration)
        spanning += 1
        if span_s >= LEAST_S:
            break
    for length in sorted({max(length, spanning) for length in LENGTHS}):
        if length <= len(iterations) and (rank := late_rank(iterations[-length:])) is not None:
            return rank
    return None


def is_still_late(iterations: Sequence[Iteration], rank: int) -> bool:
    """Returns whether a rank that was named is late in at least half of the latest iterations."""
    latest = iterations[-LENGTHS[-1] :]
    return 2 * sum(rank in _late_in(iteration) for iteration in latest) >= len(latest)


@cache
def least_late(iterations: int, ranks: int) -> int:
    """Returns in how many of some iterations a rank must be late, so that chance doesn't explain it.

    It is more than `iterations` if no number would do.
    """
    probability, least = 0.0, iterations + 1
    while least > 0:
        probability += math.comb(iterations, least - 1) / 2**iterations
        if probability * ranks > MOST_BY_CHANCE:
            return least
        least -= 1
    return least


def _late_in(iteration: Iteration) -> list[int]:
    """Returns the ranks that the median of the others waits for in one iteration."""
    tails = [rank.tail_s for rank in iteration if rank.tail_s is not None]
    length_s = max(rank.iteration_s for rank in iteration)
    if len(tails) != len(iteration) or len(tails) < 2 or length_s <= 0:
        return []
    middle_s = statistics.median(tails) if len(tails) > 2 else max(tails)
    return [rank for rank, tail_s in enumerate(tails) if middle_s - tail_s >= LATE_SHARE * length_s]


def _median_tail_s(iterations: Sequence[Iteration], rank: int) -> float:
    tails = [i[rank].tail_s for i in iterations]
    return statistics.median(0.0 if tail is None else tail for tail in tails)
