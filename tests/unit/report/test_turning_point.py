"""The rate at which exposed communication is half of an iteration."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wirecost.report.turning_point import Measured, turning_rates


def measured(rate_bps: float, compute_s: float, volume: float, hidden_s: float, doubt: float = 0.0) -> Measured:
    """A network over which a job sends `volume` bits, of whose time computation hides `hidden_s`."""
    x = 1 / rate_bps
    exposed_s = max(0.0, volume * x - hidden_s)
    low_s, high_s = exposed_s * (1 - doubt), exposed_s * (1 + doubt)
    return Measured(x, low_s, high_s, compute_s, compute_s, volume)


positive = st.floats(0.01, 10)


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=4, unique=True), positive, positive, st.floats(0, 0.2))
def test_the_bounds_contain_the_true_rate(
    rates: list[float], compute_s: float, hidden_s: float, doubt: float
) -> None:
    volume = 100.0
    true_bps = volume / (compute_s + hidden_s)
    assume(all(abs(rate / true_bps - 1) > 1e-6 for rate in rates))
    low, high = turning_rates([measured(rate, compute_s, volume, hidden_s, doubt) for rate in rates])
    assert low is None or low <= true_bps * (1 + 1e-9)
    assert high is None or high >= true_bps * (1 - 1e-9)


def test_networks_on_both_sides_give_an_interval() -> None:
    low, high = turning_rates([measured(rate, 1.0, 100.0, 0.5) for rate in (30.0, 300.0)])
    assert low is not None and high is not None
    assert 30 <= low <= 100 / 1.5 <= high <= 300


def test_one_network_gives_one_bound_and_none_gives_none() -> None:
    low, high = turning_rates([measured(1000.0, 1.0, 100.0, 0.05)])
    assert low is None and high == pytest.approx(1 / (1e-3 + 0.95 / 100))
    assert turning_rates([]) == (None, None)
