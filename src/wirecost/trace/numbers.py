"""Converts microseconds as decimal text to integer nanoseconds exactly, without floating point.

Kineto writes microseconds with up to three decimals since PyTorch 2.4, integers before, and adds no base time. At
1.7e15 us a double has steps of 0.25 us, so it would lose the decimals.
"""

from __future__ import annotations

import re
from fractions import Fraction

# Nanoseconds of every fraction of at most three digits: b"" -> 0, b"5" -> 500, b"05" -> 50, b"655" -> 655.
NS_OF_FRACTION: dict[bytes, int] = {b"": 0} | {
    f"{value:0{digits}d}".encode(): value * 10 ** (3 - digits)
    for digits in (1, 2, 3)
    for value in range(10**digits)
}

# Far enough from 2**63 that a start plus a base time, and a difference of two of those, stay in int64;
# the clock of the Unix epoch gets there in 2043.
LIMIT_NS = 2**61
# 13 days: no event lasts longer, and sums of many stay in int64.
LONGEST_NS = 2**50

_NUMBER = re.compile(rb"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_MAX_DIGITS = 400
_PLAIN_DIGITS = 15  # of integer microseconds: below LIMIT_NS


class NotANumber(ValueError):
    """The text is no JSON number."""


class OutOfRange(ValueError):
    """The number is beyond what 64-bit nanoseconds hold."""


def exact_ns(text: bytes) -> Fraction:
    """Returns a JSON number of microseconds in nanoseconds, exactly.

    Raises:
        NotANumber: for anything but a JSON number.
        OutOfRange: beyond +-2**61 ns, or with absurdly many digits.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise NotANumber(text[:40])
    sign, integer, fraction, exponent = match.groups()
    fraction = (fraction or b"").rstrip(b"0")
    digits = (integer + fraction).lstrip(b"0")
    if not digits:
        return Fraction(0)
    if len(digits) > _MAX_DIGITS or len(exponent or b"") > 5:
        raise OutOfRange(text[:40])
    power = int(exponent or 0) - len(fraction) + 3
    if len(digits) + power > 20 or power < -2 * _MAX_DIGITS:
        raise OutOfRange(text[:40])
    value = Fraction(int(digits)) * Fraction(10) ** power
    if value > LIMIT_NS:
        raise OutOfRange(text[:40])
    return -value if sign else value


def nearest_span_ns(ts: bytes, dur: bytes) -> tuple[int, int]:
    """Returns (start_ns, end_ns) of an event whose times went through doubles or are written as text, to the
    nearest ns.

    JAX writes microseconds as the seventeen digits of a double, Ascend's profiler as strings.

    Raises:
        NotANumber: for anything but a number or a string of one, and for a negative duration.
        OutOfRange: see `span_ns`.
    """
    start, length = (exact_ns(text.strip(b'"')) for text in (ts, dur))
    end = start + length
    if length < 0:
        raise NotANumber(dur[:40])
    if abs(end) > LIMIT_NS or length > LONGEST_NS:
        raise OutOfRange(dur[:40])
    half = Fraction(1, 2)
    return (start + half).__floor__(), (end + half).__floor__()


def span_ns(ts: bytes, dur: bytes) -> tuple[int, int, bool]:
    """Returns (start_ns, end_ns, exact) of an event from the texts of its `ts` and `dur` in microseconds.

    Where a time is finer than a nanosecond (`exact` is False), both ends of the exact interval are rounded down,
    so that intervals that touch still touch and none is turned around.

    Raises:
        NotANumber: see `exact_ns`.
        OutOfRange: see `exact_ns`; and for durations beyond 2**50 ns.
    """
    plain_start, plain_length = plain_ns(ts), plain_ns(dur)
    if plain_start is not None and plain_length is not None and plain_length <= LONGEST_NS:
        return plain_start, plain_start + plain_length, True
    start = exact_ns(ts)
    length = exact_ns(dur)
    end = start + length
    if abs(end) > LIMIT_NS or length > LONGEST_NS:
        raise OutOfRange(dur[:40])
    return start.__floor__(), end.__floor__(), start.denominator == 1 and end.denominator == 1


def plain_ns(text: bytes) -> int | None:
    """Returns a number of microseconds in nanoseconds, if it has at most 15 digits and three decimals; else None.

    Nearly all times are written in this form.
    """
    integer, dot, part = text.partition(b".")
    if len(integer) > _PLAIN_DIGITS or not integer.isdigit() or part not in NS_OF_FRACTION or len(dot) > len(part):
        return None
    return int(integer) * 1000 + NS_OF_FRACTION[part]
