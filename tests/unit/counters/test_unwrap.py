"""Wraps, resets, absence: what a counter shows against what passed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.counters.unwrap import Counter

steps = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50)


@given(st.integers(0, 2**32 - 2), steps)
def test_a_32_bit_counter_over_any_number_of_wraps(start: int, amounts: list[int]) -> None:
    counter, shown = Counter(), start
    assert counter.step(shown) is None and counter.note == "first"
    for amount in amounts:
        shown = (shown + amount) % 2**32
        if shown == 2**32 - 1:
            shown -= 1  # a register that is full looks otherwise; tested apart
            amount = (amount - 1) % 2**32
        if amount >= 2**31:
            return
        assert counter.step(shown) == amount
    assert counter.note is None


@given(st.integers(2**63, 2**64 - 1), st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_a_64_bit_counter_that_wraps(start: int, amounts: list[int]) -> None:
    counter, shown = Counter(), start
    counter.step(shown)
    for amount in amounts:
        shown = (shown + amount) % 2**64
        counter.step(shown)
    assert counter.total == sum(amounts)


@given(st.integers(0, 2**64 - 1), steps)
def test_the_total_never_falls(start: int, shown: list[int]) -> None:
    counter = Counter()
    counter.step(start)
    before = 0
    for raw in shown:
        delta = counter.step(raw)
        assert counter.total >= before and (delta is None or delta == counter.total - before)
        before = counter.total
    assert counter.total == before


def test_a_reset_is_no_wrap() -> None:
    counter = Counter()
    counter.step(10**15)
    counter.step(10**15 + 500)
    assert counter.step(200) is None
    assert counter.note == "reset"
    assert counter.step(900) == 700
    assert counter.total == 1200


def test_link_speed_tells_a_wrap_from_a_reset() -> None:
    last, raw = 2**31 + 5, 100  # more than half the range would have passed
    fast, slow = Counter(), Counter()
    fast.step(last)
    slow.step(last)
    assert fast.step(raw, most=2**32) == 2**32 - last + raw
    assert slow.step(raw, most=10**6) is None and slow.note == "reset"


def test_a_full_register() -> None:
    counter = Counter()
    counter.step(2**32 - 1)
    assert counter.step(2**32 - 1) is None and counter.note == "full"


def test_a_device_that_was_away() -> None:
    counter = Counter()
    counter.step(100)
    counter.step(150)
    counter.absent()
    assert counter.step(10**6) is None and counter.note == "first"
    assert counter.step(10**6 + 7) == 7
    assert counter.total == 57


@pytest.mark.parametrize("raw", [0, 2**32 - 1, 2**32, 2**64 - 1])
def test_edges_of_the_ranges(raw: int) -> None:
    counter = Counter()
    counter.step(raw)
    assert counter.step(raw) in (0, None)
