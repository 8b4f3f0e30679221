"""How much evidence `wirecost.watch` needs before it names a late rank."""

import random

from hypothesis import given
from hypothesis import strategies as st

from wirecost.live.late import is_still_late, late_rank, latest_late_rank, least_late
from wirecost.live.marks import IterationTimes


def ranks(*tails_s: float | None, iteration_s: float = 0.1) -> list[IterationTimes]:
    return [IterationTimes(iteration_s, tail) for tail in tails_s]


def test_a_rank_that_is_late_in_ten_iterations_is_named() -> None:
    assert latest_late_rank([ranks(0.05, 0.05)] * 30 + [ranks(0.05, 0.0)] * 10) == 1
    assert latest_late_rank([ranks(0.05, 0.05)] * 30 + [ranks(0.05, 0.0)] * 9) is None


def test_a_rank_that_is_late_in_most_of_twenty_iterations_is_named() -> None:
    punctual, late = ranks(0.05, 0.05), ranks(0.05, 0.0)
    assert latest_late_rank([*[late] * 9, punctual, *[late] * 9, punctual]) == 1
    assert latest_late_rank([*[late] * 8, punctual, *[late] * 8, punctual, punctual, punctual]) is None


def test_a_median_over_a_busy_machine_names_nobody() -> None:
    # Each rank is late in half of the iterations: a core is taken from one or the other.
    noisy = [ranks(0.05, 0.0), ranks(0.0, 0.05)] * 10
    assert latest_late_rank(noisy) is None
    # One rank is late in 13 of 20 iterations, so that the medians differ by half of an iteration.
    assert latest_late_rank([ranks(0.05, 0.0)] * 6 + [ranks(0.0, 0.05)] * 7 + [ranks(0.05, 0.0)] * 7) is None


def test_a_short_delay_of_many_short_iterations_names_nobody() -> None:
    short = ranks(0.0005, 0.0, iteration_s=0.001)
    assert latest_late_rank([short] * 30) is None
    assert latest_late_rank([short] * 500) == 1


def test_one_late_rank_among_many_with_the_same_spread_is_found() -> None:
    generator = random.Random(1)
    noise = [[generator.uniform(0.02, 0.06) for _ in range(64)] for _ in range(20)]
    assert late_rank([ranks(*tails) for tails in noise]) is None
    for tails in noise:
        tails[7] = 0.0
    assert late_rank([ranks(*tails) for tails in noise]) == 7


def test_unknown_tails_and_one_rank_name_nobody() -> None:
    assert latest_late_rank([ranks(None, 0.0)] * 20) is None
    assert latest_late_rank([ranks(0.05)] * 20) is None
    assert latest_late_rank([]) is None


def test_a_named_rank_stays_late_until_half_of_the_iterations_are_punctual() -> None:
    punctual, late = ranks(0.05, 0.05), ranks(0.05, 0.0)
    assert is_still_late([late, punctual] * 10, 1)
    assert not is_still_late([late] * 9 + [punctual] * 11, 1)


@given(st.integers(1, 400), st.integers(2, 5000))
def test_the_number_of_late_iterations_bounds_the_probability_of_chance(iterations: int, world: int) -> None:
    from scipy.stats import binom

    least = least_late(iterations, world)
    assert 0 < least <= iterations + 1
    assert binom.sf(least - 1, iterations, 0.5) * world <= 0.002 * (1 + 1e-9)
    assert binom.sf(least - 2, iterations, 0.5) * world > 0.002 * (1 - 1e-9)
