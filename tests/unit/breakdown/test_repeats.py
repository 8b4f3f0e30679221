"""Intervals over repeats are those of Student and Welch, and cover what they say."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wirecost.breakdown import ratio_over_repeats, share_interval, time_interval
from wirecost.breakdown.repeats import mean_interval

POSITIVE = st.floats(min_value=1e3, max_value=1e12)


def test_the_interval_of_a_mean_is_students() -> None:
    interval = mean_interval([10.0, 12.0, 11.0])
    assert interval is not None
    # t(2 degrees of freedom, 97.5 %) = 4.3027, standard deviation 1
    assert interval.low == pytest.approx(11 - 4.302653 / math.sqrt(3), rel=1e-6)
    assert interval.high == pytest.approx(11 + 4.302653 / math.sqrt(3), rel=1e-6)
    assert interval.n == 3


def test_a_single_repeat_has_no_interval() -> None:
    assert mean_interval([10.0]) is None
    assert mean_interval([]) is None
    assert ratio_over_repeats([10.0], [5.0]) is None


@given(st.lists(POSITIVE, min_size=2, max_size=6), st.lists(POSITIVE, min_size=2, max_size=6))
def test_a_ratio_is_that_of_welchs_test_of_the_logarithms(above: list[float], below: list[float]) -> None:
    ratio = ratio_over_repeats(above, below)
    assert ratio is not None
    logs = [[math.log(x) for x in side] for side in (above, below)]
    if min(statistics.variance(side) for side in logs) < 1e-9:
        return
    expected = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    assert math.log(ratio.value) == pytest.approx(statistics.fmean(logs[0]) - statistics.fmean(logs[1]), abs=1e-9)
    assert math.log(ratio.low) == pytest.approx(expected.low, rel=1e-6, abs=1e-6)
    assert math.log(ratio.high) == pytest.approx(expected.high, rel=1e-6, abs=1e-6)


def test_a_single_repeat_of_one_side_takes_the_variance_of_the_other() -> None:
    ratio = ratio_over_repeats([20.0], [9.9, 10.0, 10.1])
    assert ratio is not None
    assert ratio.value == pytest.approx(2.0, rel=1e-3)
    assert ratio.low < 2 < ratio.high
    assert (ratio.n_numerator, ratio.n_denominator) == (1, 3)


def test_equal_repeats_have_an_interval_of_no_width() -> None:
    ratio = ratio_over_repeats([20.0, 20.0], [10.0, 10.0])
    assert ratio is not None
    assert ratio.low == pytest.approx(2) == ratio.high


def test_three_repeats_cover_the_true_ratio_as_often_as_stated() -> None:
    # Whole launches differ by 5 %. Intervals over the iterations of one launch would cover it rarely.
    source = random.Random(7)

    def launches(mean: float) -> list[float]:
        return [mean * math.exp(source.gauss(0, 0.05)) for _ in range(3)]

    covered = 0
    for _ in range(1000):
        ratio = ratio_over_repeats(launches(30), launches(10))
        assert ratio is not None
        covered += ratio.low <= 3 <= ratio.high
    assert 0.93 < covered / 1000 < 0.99


def test_no_time_is_negative_and_no_share_beyond_its_bounds() -> None:
    time = time_interval([20.0, 60.0, 25.0])
    assert time is not None
    assert 0 < time.low < 20 < 60 < time.high
    share = share_interval([0.2, 0.9])
    assert share is not None
    assert (share.low, share.high) == (0, 1)
    assert time_interval([0.0, 1.0]) is None
    assert time_interval([1.0]) is share_interval([0.5]) is None
