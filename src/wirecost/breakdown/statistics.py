"""Median, inter-quartile range and sample count: a number without n is not a result."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values by linear interpolation (numpy's default, type 7 of Hyndman & Fan 1996)."""
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of n samples, in the samples' own unit."""

    median: float
    q1: float
    q3: float
    n: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread | None:
        """None for no samples: unknown, not 0."""
        if not samples:
            return None
        ordered = sorted(samples)
        return cls(statistics.median(ordered), quantile(ordered, 0.25), quantile(ordered, 0.75), len(ordered))


@dataclass(frozen=True)
class Ratio:
    """A ratio of two medians with a 95 % bootstrap interval and the sample counts behind it."""

    value: float
    low: float
    high: float
    n_numerator: int
    n_denominator: int


def ratio_of_medians(
    numerator: Sequence[float], denominator: Sequence[float], *, resamples: int = 2000
) -> Ratio | None:
    """median(numerator) / median(denominator) with a percentile bootstrap interval (Efron 1979).

    None where either side has no samples or the denominator's median is 0. The resampling is seeded,
    so that the same samples print the same interval.
    """
    if not numerator or not denominator or statistics.median(denominator) == 0:
        return None
    draw = random.Random(0)  # noqa: S311 - statistics, not secrets
    ratios = sorted(
        statistics.median(draw.choices(numerator, k=len(numerator)))
        / (statistics.median(draw.choices(denominator, k=len(denominator))) or math.inf)
        for _ in range(resamples)
    )
    return Ratio(
        statistics.median(numerator) / statistics.median(denominator),
        quantile(ratios, 0.025),
        quantile(ratios, 0.975),
        len(numerator),
        len(denominator),
    )
