"""The vectorised bootstrap gives the numbers of the plain one."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirecost.breakdown import Ratio, ratio_of_medians
from wirecost.breakdown import statistics as ours
from wirecost.breakdown.statistics import quantile

NANOSECONDS = st.lists(st.integers(0, 2**52), min_size=1, max_size=40)
FEW_VALUES = st.lists(st.integers(0, 3), min_size=1, max_size=12)
SECONDS = st.lists(st.just(0.0) | st.floats(1e-9, 1e6), min_size=1, max_size=12)


def plain(numerator: Sequence[float], denominator: Sequence[float], resamples: int) -> Ratio | None:
    if statistics.median(denominator) == 0:
        return None
    draw = random.Random(0)
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


@pytest.mark.parametrize("samples", [NANOSECONDS, FEW_VALUES, SECONDS])
def test_the_intervals_are_those_of_the_plain_bootstrap(samples: st.SearchStrategy[list[float]]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(samples, samples)
    def check(numerator: list[float], denominator: list[float]) -> None:
        assert ratio_of_medians(numerator, denominator, resamples=200) == plain(numerator, denominator, 200)

    check()


def test_the_default_number_of_resamples_too() -> None:
    draw = random.Random(1)
    times_ns = [[draw.randrange(10**9) for _ in range(n)] for n in (8, 11)]
    assert ratio_of_medians(*times_ns) == plain(*times_ns, resamples=2000)


@pytest.mark.parametrize("most_draws", [1, 7, 100, 1 << 22])
def test_draws_in_blocks_are_the_same_draws(most_draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "MOST_KEPT_DRAWS", 0)
    monkeypatch.setattr(ours, "MOST_DRAWS", most_draws)
    numerator, denominator = [5, 1, 4, 2, 8], [3, 1, 9]
    assert ratio_of_medians(numerator, denominator, resamples=50) == plain(numerator, denominator, 50)


def test_pairs_with_as_many_samples_share_their_draws() -> None:
    ours._kept_resamples.cache_clear()
    for shift in range(20):
        assert ratio_of_medians([1 + shift, 2, 3], [4 + shift, 5], resamples=50) is not None
    assert ours._kept_resamples.cache_info().misses == 1
