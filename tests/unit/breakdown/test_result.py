from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from wirecost.breakdown import Breakdown, Iteration, Parts, Phase, Source, Spread, ratio_of_medians
from wirecost.breakdown.statistics import quantile


def iteration(rank: int, name: str, window: int, comm: int) -> Iteration:
    parts = Parts(
        window_ns=window,
        compute_only_ns=window - comm,
        overlapped_ns=0,
        exposed_comm_ns=comm,
        exposed_memory_ns=0,
        idle_ns=0,
    )
    return Iteration(
        rank=rank, name=name, parts=parts, phases={Phase.FORWARD: window - comm, Phase.GRAD_SYNC: comm}
    )


def breakdown(*iterations: Iteration, world_size: int = 2) -> Breakdown:
    return Breakdown(source=Source.MEASURED, title="t", world_size=world_size, iterations=iterations)


def test_an_iteration_takes_as_long_as_its_slowest_rank() -> None:
    b = breakdown(iteration(0, "a", 100, 10), iteration(1, "a", 120, 30), iteration(0, "b", 90, 9))
    assert b.iteration_times_ns() == [120, 90]
    fraction = b.comm_fraction()
    assert fraction is not None
    assert fraction.n == 2
    assert fraction.median == pytest.approx(((10 / 100 + 30 / 120) / 2 + 9 / 90) / 2)


def test_phases_are_means_over_ranks_and_medians_over_iterations() -> None:
    b = breakdown(iteration(0, "a", 100, 10), iteration(1, "a", 120, 30), iteration(0, "b", 90, 9))
    assert b.phase_ns(Phase.GRAD_SYNC) == Spread.of([20, 9])
    assert b.phase_ns(Phase.OPTIMIZER) is None


def test_imbalance_of_experts_is_the_largest_load_over_the_mean() -> None:
    loads = [(0, "a", 1.5), (1, "a", 0.5), (0, "b", 1.25), (1, "b", 0.75), (0, "c", None)]
    b = breakdown(*(iteration(r, n, 10, 1).model_copy(update={"expert_load": load}) for r, n, load in loads))
    assert b.expert_imbalance() == Spread.of([1.5, 1.25])
    assert breakdown(iteration(0, "a", 10, 1)).expert_imbalance() is None


def test_json_round_trip() -> None:
    b = breakdown(iteration(0, "a", 2**62 + 1, 10))
    assert Breakdown.model_validate_json(b.model_dump_json()) == b


@pytest.mark.parametrize("change", [{"schema_version": 3}, {"colour": "red"}, {"world_size": 0}])
def test_what_another_version_wrote_is_refused(change: dict[str, object]) -> None:
    data = breakdown(iteration(0, "a", 10, 1)).model_dump() | change
    with pytest.raises(ValidationError):
        Breakdown.model_validate(data)


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(ValidationError, match="rank 2 is outside a world of 2"):
        breakdown(iteration(2, "a", 10, 1))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[int], q: float) -> None:
    assert quantile(sorted(values), q) == pytest.approx(float(np.quantile(values, q)))


def test_no_samples_are_unknown_not_zero() -> None:
    assert Spread.of([]) is None
    assert ratio_of_medians([], [1]) is None
    assert ratio_of_medians([1], [0]) is None


def test_ratio_has_its_interval_and_n_and_repeats() -> None:
    ratio = ratio_of_medians([20, 22, 24, 26], [10, 11, 12])
    assert ratio is not None
    assert ratio.value == pytest.approx(23 / 11)
    assert ratio.low < ratio.value < ratio.high
    assert (ratio.n_numerator, ratio.n_denominator) == (4, 3)
    assert ratio == ratio_of_medians([20, 22, 24, 26], [10, 11, 12])
