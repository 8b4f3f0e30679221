"""The fit says what it can't know."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from wirecost.calibration.properties import Free
from wirecost.calibration.solver import solve

X = np.array([1.0, 2.0, 4.0, 8.0])


def errors(values: Mapping[str, float]) -> np.ndarray:
    """A line through measurements of 3 + 2 x, each known to 2 %; `unseen` plays no part."""
    return np.log((values["base"] + values["slope"] * X) / (3 + 2 * X)) / 0.02


def test_what_the_data_determine_is_found_and_the_rest_stays() -> None:
    start = [Free("base", 1.0, 1.0), Free("slope", 1.0, 1.0), Free("unseen", 7.0, 1.0)]
    base, slope, unseen = solve(start, errors)
    assert base.value == pytest.approx(3, rel=0.05)
    assert slope.value == pytest.approx(2, rel=0.05)
    assert base.within is not None
    assert 0.01 < base.within < 0.2
    assert (unseen.value, unseen.within) == (7.0, None)


def test_an_overhead_of_nothing_is_determined_though_its_size_is_not() -> None:
    # 5 + 2 x is excluded by the measurements; whether the base is 0.001 or 0.0001 is not.
    def line(values: Mapping[str, float]) -> np.ndarray:
        return np.log((values["base"] + 2 * X) / (2 * X)) / 0.02

    (base,) = solve([Free("base", 5.0, 1.0)], line)
    assert base.determined
    assert base.value < 0.1


def test_one_disturbed_run_does_not_decide() -> None:
    measured = np.array([3.0, 3.0, 3.0, 3.0, 12.0])
    (level,) = solve([Free("level", 1.0, 2.0)], lambda v: np.log(v["level"] / measured) / 0.05)
    assert level.value == pytest.approx(3, rel=0.1)


def test_the_range_of_a_property_is_kept() -> None:
    (share,) = solve([Free("share", 0.5, 2.0, 0.1, 1.0)], lambda v: np.log(v["share"] / X) / 0.05)
    assert 0.1 <= share.value <= 1.0
