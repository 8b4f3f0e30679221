"""Microseconds as text to nanoseconds, held against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.trace.numbers import LIMIT_NS, LONGEST_NS, NS_OF_FRACTION, NotANumber, OutOfRange, exact_ns, span_ns

digits = st.text("0123456789", min_size=1, max_size=14)
whole = digits.map(lambda d: d.lstrip("0") or "0")


@given(st.sampled_from(["", "-"]), whole, st.none() | digits, st.none() | st.integers(-30, 5))
def test_any_json_number_is_exact(sign: str, number: str, fraction: str | None, exponent: int | None) -> None:
    text = sign + number + (f".{fraction}" if fraction is not None else "")
    if exponent is not None:
        text += f"e{exponent:+d}"
    want = Fraction(text) * 1000
    if abs(want) > LIMIT_NS:
        with pytest.raises(OutOfRange):
            exact_ns(text.encode())
    else:
        assert exact_ns(text.encode()) == want


def test_no_digit_is_lost_where_a_double_loses_it() -> None:
    text = b"1694128201426556.123"
    assert exact_ns(text) == 1_694_128_201_426_556_123
    assert round(float(text) * 1000) != 1_694_128_201_426_556_123


@given(whole, digits, whole, digits)
def test_both_ends_of_an_interval_are_rounded_down(a: str, b: str, c: str, d: str) -> None:
    ts, dur = f"{a}.{b}", f"{c}.{d}"
    start, end = Fraction(ts) * 1000, (Fraction(ts) + Fraction(dur)) * 1000
    if end > LIMIT_NS or end - start > LONGEST_NS:
        with pytest.raises(OutOfRange):
            span_ns(ts.encode(), dur.encode())
        return
    got = span_ns(ts.encode(), dur.encode())
    assert got == (floor(start), floor(end), start.denominator == 1 and end.denominator == 1)


def test_touching_intervals_still_touch() -> None:
    _, end, _ = span_ns(b"10.0004", b"0.3333")
    start, _, _ = span_ns(b"10.3337", b"1")
    assert end == start


@pytest.mark.parametrize(
    "text",
    [b"", b"abc", b'"12"', b"null", b"1_000", b" 1", b"1 ", b"+1", b"0x10", b"NaN", b"Infinity", b"1.", b".5",
     b"--1", b"1e", b"[1]", "١".encode()],
)  # fmt: skip
def test_what_is_no_number(text: bytes) -> None:
    with pytest.raises(NotANumber):
        exact_ns(text)


@pytest.mark.parametrize("text", [b"9" * 30, b"1e300", b"1e999999999999", b"-1e99", b"1" * 5000, b"1e-99999"])
def test_absurd_numbers_are_out_of_range(text: bytes) -> None:
    with pytest.raises(OutOfRange):
        exact_ns(text)


def test_zero_is_zero_whatever_its_exponent() -> None:
    assert exact_ns(b"0e999999999") == 0
    assert exact_ns(b"-0.000") == 0


def test_the_table_of_fractions() -> None:
    assert len(NS_OF_FRACTION) == 1 + 10 + 100 + 1000
    assert all(Fraction(int(k or 0), 10 ** len(k)) * 1000 == v for k, v in NS_OF_FRACTION.items())
