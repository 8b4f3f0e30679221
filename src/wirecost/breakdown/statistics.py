"""Statistics of samples: median, quartiles, sample count, and ratios of medians."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

MOST_DRAWS = 1 << 22
"""Most draws of the bootstrap in memory at once."""
MOST_KEPT_DRAWS = 1 << 20
"""Bootstraps of at most this number of draws are cached for other pairs with the same numbers of samples."""


def quantile(ordered: Sequence[float], q: float) -> float:
    """Returns the q-quantile of sorted values by linear interpolation (numpy's default, type 7 of Hyndman & Fan
    1996).
    """
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of n samples, in the samples' unit."""

    median: float
    q1: float
    q3: float
    n: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread | None:
        """Returns the spread of samples; None without samples."""
        if not samples:
            return None
        ordered = sorted(samples)
        return cls(statistics.median(ordered), quantile(ordered, 0.25), quantile(ordered, 0.75), len(ordered))


@dataclass(frozen=True)
class Ratio:
    """A ratio of two medians with its 95 % bootstrap interval and the sample counts."""

    value: float
    low: float
    high: float
    n_numerator: int
    n_denominator: int


Counts = npt.NDArray[np.int32]
"""The number of times that each resample drew each sample, of shape (samples, resamples)."""


def ratio_of_medians(
    numerator: Sequence[float], denominator: Sequence[float], *, resamples: int = 2000
) -> Ratio | None:
    """Returns median(numerator) / median(denominator) with a percentile bootstrap interval (Efron 1979).

    Returns None if either side has no samples or the denominator's median is 0. The resampling is seeded, so that
    the same samples give the same interval.
    """
    if not numerator or not denominator or statistics.median(denominator) == 0:
        return None
    ratios = []
    if (len(numerator) + len(denominator)) * resamples <= MOST_KEPT_DRAWS:
        ((above, _),) = _kept_resamples(len(numerator), len(denominator), resamples)
        ratios.append(_medians(numerator, above) / _kept_divisors(tuple(denominator), len(numerator), resamples))
    else:
        for above, below in _drawn_resamples(len(numerator), len(denominator), resamples):
            ratios.append(_medians(numerator, above) / _divisors(denominator, below))
    ordered: list[float] = np.sort(np.concatenate(ratios)).tolist()
    return Ratio(
        statistics.median(numerator) / statistics.median(denominator),
        quantile(ordered, 0.025),
        quantile(ordered, 0.975),
        len(numerator),
        len(denominator),
    )


@lru_cache(maxsize=16)
def _kept_resamples(numerators: int, denominators: int, resamples: int) -> tuple[tuple[Counts, Counts], ...]:
    """Returns draws with replacement from both sides. They depend only on the numbers of samples, so that the
    pairs of a study share them.
    """
    return tuple(_drawn_resamples(numerators, denominators, resamples))


@lru_cache(maxsize=16)
def _kept_divisors(samples: tuple[float, ...], numerators: int, resamples: int) -> npt.NDArray[np.float64]:
    """Returns `_divisors` of kept draws. Many networks of a study are compared with the same one."""
    ((_, below),) = _kept_resamples(numerators, len(samples), resamples)
    return _divisors(samples, below)


def _divisors(samples: Sequence[float], counts: Counts) -> npt.NDArray[np.float64]:
    """Returns the median of every resample; infinity in the place of 0."""
    medians = _medians(samples, counts)
    return np.where(medians == 0, math.inf, medians)


def _drawn_resamples(numerators: int, denominators: int, resamples: int) -> Iterator[tuple[Counts, Counts]]:
    """Yields new draws. Each resample draws first from the numerator, then from the denominator, as
    `random.Random(0).choices` does: NumPy's legacy generator gives the same doubles from the same state of the
    Mersenne Twister.
    """
    state = random.Random(0).getstate()[1]  # noqa: S311 - statistics, not secrets
    generator = np.random.RandomState()
    generator.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    block = max(1, MOST_DRAWS // (numerators + denominators))
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        uniform = generator.random_sample((rows, numerators + denominators))
        yield _counted(uniform[:, :numerators]), _counted(uniform[:, numerators:])


def _counted(uniform: npt.NDArray[np.float64]) -> Counts:
    """Converts numbers in [0, 1) of shape (resamples, samples) to counts of the drawn samples."""
    rows, samples = uniform.shape
    drawn = (uniform * samples).astype(np.int64) + samples * np.arange(rows)[:, np.newaxis]
    counts = np.bincount(drawn.ravel(), minlength=rows * samples).reshape(rows, samples)
    return np.ascontiguousarray(counts.T, dtype=np.int32)


def _medians(samples: Sequence[float], counts: Counts) -> npt.NDArray[np.float64]:
    """Returns the median of every resample.

    With sorted samples, a resample's k-th smallest draw is the first sample up to which it drew more than k times.
    Resamples need not be sorted.
    """
    values = np.array(samples, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    upper = len(samples) // 2
    lower = (len(samples) - 1) // 2
    drawn = np.zeros(counts.shape[1], dtype=np.int32)
    lower_place, upper_place = np.zeros_like(drawn), np.zeros_like(drawn)
    for sample in order:
        drawn += counts[sample]
        lower_place += drawn <= lower
        upper_place += drawn <= upper
    values = values[order]
    return (values[lower_place] + values[upper_place]) / 2
