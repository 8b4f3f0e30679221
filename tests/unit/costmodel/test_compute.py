"""Rates of matrix products."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from wirecost.costmodel.compute import REFERENCE_SHARE, share_of_peak

SHARES = st.floats(0.02, 0.99)
FACTORS = st.floats(0.4, 1.3)


@given(SHARES, FACTORS)
def test_no_stack_exceeds_the_peak_of_any_gpu(gpu: float, stack: float) -> None:
    assert 0 < share_of_peak(gpu, stack) < 1


@given(SHARES, FACTORS)
def test_a_faster_stack_is_faster_on_every_gpu(gpu: float, stack: float) -> None:
    assert share_of_peak(gpu, 1.0) == approx(gpu)
    assert (share_of_peak(gpu, stack) >= gpu) == (stack >= 1) or share_of_peak(gpu, stack) == approx(gpu)


@given(FACTORS)
def test_a_factor_applies_as_it_is_at_the_reference(stack: float) -> None:
    assert share_of_peak(REFERENCE_SHARE, stack) == approx(stack * REFERENCE_SHARE)
