"""Statistics over repeats: runs of one experiment in fresh processes.

A repeat counts once, with its median iteration. Iterations of one launch share its process placement, memory
layout and connections, so that their spread says nothing about the next launch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.breakdown.statistics import Ratio

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanInterval:
    """The 95 % interval of a mean, in the samples' unit."""

    low: float
    high: float
    n: int


def mean_interval(samples: Sequence[float]) -> MeanInterval | None:
    """Returns the 95 % interval of the mean of samples by Student's t distribution (Student 1908). None with fewer
    than two samples, which tell nothing about their spread.
    """
    if len(samples) < 2:
        return None
    mean = statistics.fmean(samples)
    half = _t(len(samples) - 1) * statistics.stdev(samples) / math.sqrt(len(samples))
    return MeanInterval(mean - half, mean + half, len(samples))


def time_interval(samples: Sequence[float]) -> MeanInterval | None:
    """Returns the 95 % interval of the geometric mean of times: that of Student's t distribution for the mean of
    their logarithms. It has no negative times. None with fewer than two samples, or if one isn't above 0.
    """
    if min(samples, default=0) <= 0:
        return None
    interval = mean_interval([math.log(sample) for sample in samples])
    return None if interval is None else MeanInterval(math.exp(interval.low), math.exp(interval.high), interval.n)


def share_interval(samples: Sequence[float]) -> MeanInterval | None:
    """Returns the 95 % interval of the mean of shares, as far as it lies between 0 and 1. None with fewer than two
    samples.
    """
    interval = mean_interval(samples)
    if interval is None:
        return None
    low, high = (min(max(bound, 0.0), 1.0) for bound in (interval.low, interval.high))
    return MeanInterval(low, high, interval.n)


def ratio_over_repeats(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio | None:
    """Returns the ratio of geometric means with its 95 % interval, which is Welch's (1947) for the difference of
    the logarithms' means.

    If one side has a single repeat, both are assumed to have the same relative variance. Returns None if neither
    has two, because nothing is known about the variance then, or if a sample isn't above 0.
    """
    n, m = len(numerator), len(denominator)
    if not n or not m or max(n, m) < 2 or min(*numerator, *denominator) <= 0:
        return None
    above, below = ([math.log(value) for value in side] for side in (numerator, denominator))
    difference = statistics.fmean(above) - statistics.fmean(below)
    if n == 1 or m == 1:
        variance = statistics.variance(above if n > 1 else below)
        error, freedom = math.sqrt(variance * (1 / n + 1 / m)), float(max(n, m) - 1)
    else:
        parts = statistics.variance(above) / n, statistics.variance(below) / m
        error = math.sqrt(sum(parts))
        spread = parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1)
        freedom = sum(parts) ** 2 / spread if spread else float(n + m - 2)
    half = _t(freedom) * error
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half), n, m)


def _t(freedom: float) -> float:
    """Returns the two-sided 95 % quantile of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
