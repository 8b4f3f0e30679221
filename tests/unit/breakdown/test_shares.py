"""The share of an iteration has one definition, whatever it is computed from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.breakdown import (
    Breakdown,
    Iteration,
    Parts,
    Profile,
    ProfiledComm,
    Share,
    Source,
    UnknownProfile,
    unknown_parts,
)
from wirecost.breakdown.shares import divided, over_repeats


def iteration(name: str, rank: int, exposed_ns: int, window_ns: int = 100) -> Iteration:
    """An iteration of which `exposed_ns` are exposed communication and the rest is computation."""
    parts = Parts(
        window_ns=window_ns,
        compute_only_ns=window_ns - exposed_ns,
        overlapped_ns=0,
        exposed_comm_ns=exposed_ns,
        exposed_memory_ns=0,
        idle_ns=0,
    )
    return Iteration(rank=rank, name=name, parts=parts)


def timed(time_ns: int, profile: Profile | None) -> Breakdown:
    """A command's breakdown: iterations that were only timed, and a profiled window."""
    iterations = tuple(Iteration(rank=r, name=n, parts=unknown_parts(time_ns)) for n in "ab" for r in (0, 1))
    return Breakdown(source=Source.MEASURED, title="t", world_size=2, iterations=iterations, profile=profile)


def window(*iterations: Iteration, comm: tuple[ProfiledComm, ...] = ()) -> Profile:
    return Profile(asked_iterations=3, iterations=iterations, comm=comm)


WINDOW = window(
    *(iteration(name, rank, exposed) for name, ends in zip("abc", ((10, 30), (40, 60), (0, 90)), strict=True)
      for rank, exposed in enumerate(ends))
)  # fmt: skip
"""Means over the ranks are 0.2, 0.5 and 0.45."""


def test_it_is_the_median_over_iterations_of_the_mean_over_ranks() -> None:
    assert timed(100, WINDOW).share("exposed_comm_ns") == Share(0.45, 0.45, 3)
    measured = Breakdown(source=Source.MEASURED, title="t", world_size=2, iterations=WINDOW.iterations)
    assert measured.share("exposed_comm_ns") == Share(0.45, 0.45, 3)
    fraction = measured.comm_fraction()
    assert fraction is not None and fraction.median == 0.45


@pytest.mark.parametrize(
    ("time_ns", "low", "high"), [(104, 0.45, 0.45), (90, 0.45, 0.5), (200, 0.225, 0.45), (30, 0.45, 1.0)]
)
def test_a_profiler_that_changes_the_time_leaves_an_interval(time_ns: int, low: float, high: float) -> None:
    share = timed(time_ns, WINDOW).share("exposed_comm_ns")
    assert share is not None
    assert (share.low, share.high) == pytest.approx((low, high))
    assert (share.point is None) == (low != high)


def test_it_is_unknown_without_a_window_of_every_rank() -> None:
    assert timed(100, None).share("exposed_comm_ns") is None
    assert timed(100, window()).share("exposed_comm_ns") is None
    unknown = WINDOW.model_copy(update={"unknown": (UnknownProfile(rank=1, reason="no trace"),)})
    assert timed(100, unknown).share("exposed_comm_ns") is None


def test_repeats_count_once_each() -> None:
    shares = [Share(0.1, 0.2, 3), None, Share(0.3, 0.3, 3), Share(0.2, 0.4, 3)]
    assert over_repeats(shares) == Share(0.2, 0.3, 3)
    assert over_repeats([None]) is None


def comm(transfer_ns: int, wait_ns: int, bubble_ns: int = 0, unknown_ns: int = 0) -> ProfiledComm:
    return ProfiledComm(
        rank=0, name="a", transfer_ns=transfer_ns, wait_ns=wait_ns, bubble_ns=bubble_ns, unknown_ns=unknown_ns
    )


@given(
    st.lists(st.tuples(*[st.integers(0, 10**9)] * 3), min_size=1, max_size=5),
    st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
)
def test_transfer_and_wait_sum_to_the_exposed_share(times: list[tuple[int, int, int]], ends: list[float]) -> None:
    profile = window(iteration("a", 0, 10), comm=tuple(comm(*each) for each in times))
    parts = divided(Share(ends[0], ends[1], 3), profile)
    assert parts is not None
    transfer, wait = parts
    assert (transfer.low + wait.low, transfer.high + wait.high) == pytest.approx(tuple(ends))
    total = sum(map(sum, times))
    if total and ends[1] > 1e-9:
        assert transfer.high / ends[1] == pytest.approx(sum(t for t, _, _ in times) / total)


def test_transfer_and_wait_are_unknown_if_a_part_is_not_matched() -> None:
    assert divided(Share(0.1, 0.1, 3), window(comm=(comm(1, 1, 0, 1),))) is None
    assert divided(Share(0.1, 0.1, 3), WINDOW) is None
    assert divided(None, window(comm=(comm(1, 1),))) is None


def test_text_shows_an_interval_only_if_its_ends_differ_in_print() -> None:
    assert (Share(0.25, 0.25, 3).text(), Share(0.25, 0.3, 3).text()) == ("25.0 %", "25.0-30.0 %")
    assert (Share(0.251, 0.252, 3).text(0), Share(0.251, 0.252, 3).fraction_text()) == ("25 %", "0.25")
