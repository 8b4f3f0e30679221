"""Parses and formats quantities with units ("1 Gb/s", "64 MiB", "90 s").

Inside the package, link rates are in bits per second (`_bps`), rates of memory and collectives in bytes per second
(`_Bps`), sizes in bytes (`_bytes`), and times in integer nanoseconds (`_ns`) or seconds (`_s`).
"""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/]*)\s*$")

_RATE_BPS = {
    **{f"{prefix}{bit}": factor
       for prefix, factor in {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.items()
       for bit in ("b/s", "bit/s", "bps", "bit")},
    **{f"{prefix}B/s": 8 * factor
       for prefix, factor in {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
                              "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}.items()},
}  # fmt: skip

_SIZE_BYTES = {
    "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "K": 2**10, "M": 2**20, "G": 2**30,
}  # fmt: skip

_TIME_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
}


_LOWEST_BPS, _HIGHEST_BPS = 1.0, 1e18
_HIGHEST_BYTES = 1 << 63


def _parse(text: object, factors: dict[str, float] | dict[str, int], kind: str, example: str) -> float:
    """Returns a number with a unit in the base unit of `factors`.

    Args:
        factors: the factor to the base unit for each accepted unit.
        kind, example: name the quantity and show how it is written, for error messages.

    Raises:
        ValueError: if `text` isn't a non-negative, finite number with one of the units.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"a {kind} is written like '{example}', not {str(text)[:60]!r}")
    if isinstance(text, int) and abs(text) > 10**30:
        raise ValueError(f"so large a number can't be a {kind}")
    if len(str(text)) > 60:
        raise ValueError(f"a {kind} is written like '{example}', not '{str(text)[:60]}...'")
    match = _NUMBER.match(str(text))
    if not match:
        negative = str(text).strip().startswith("-")
        raise ValueError(
            f"a {kind} must be positive, not '{text}'" if negative
            else f"a {kind} is written like '{example}', not '{text}'"
        )  # fmt: skip
    number, unit = float(match[1]), match[2]
    if unit not in factors:
        raise ValueError(f"'{text}' needs a unit that a {kind} has, as in '{example}'")
    value = number * factors[unit]
    if not math.isfinite(value):
        raise ValueError(f"'{text}' is not a finite {kind}")
    return value


def parse_rate_bps(text: object) -> float:
    """Returns a rate in bits per second: '1 Gb/s' gives 1e9. The unit has b for bits and B for bytes.

    Raises:
        ValueError: if the rate isn't positive and finite, or has no unit.
    """
    value = _parse(text, _RATE_BPS, "rate", "1 Gb/s")
    if value <= 0:
        raise ValueError(f"a rate must be positive, not '{text}'")
    if not _LOWEST_BPS <= value <= _HIGHEST_BPS:
        raise ValueError(f"'{text}' can't be a rate: expected one from 1 b/s to 1e18 b/s")
    return value


def parse_size_bytes(text: object) -> int:
    """Returns a size in bytes: '64 MiB' gives 67108864. K, M and G alone are binary, as in nccl-tests.

    Raises:
        ValueError: if `text` isn't a size, or is too large.
    """
    value = round(_parse(text, _SIZE_BYTES, "size", "64 MiB"))
    if value >= _HIGHEST_BYTES:
        raise ValueError(f"'{text}' can't be a size: expected one below {_HIGHEST_BYTES >> 60} EiB")
    return value


def parse_time_s(text: object) -> float:
    """Returns a time in seconds: '5 ms' gives 0.005.

    Raises:
        ValueError: if `text` isn't a time with a unit.
    """
    return _parse(text, _TIME_S, "time", "5 ms")


def _scaled(value: float, steps: list[tuple[float, str]], digits: int) -> str:
    """Formats a value in the largest unit that isn't larger than the value.

    Args:
        steps: pairs of factor and unit, the largest first.
    """
    for factor, unit in steps:
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {unit}"
    factor, unit = steps[-1]
    return f"{value / factor:.{digits}g} {unit}"


def format_rate_bps(bps: float, digits: int = 4) -> str:
    """Formats a rate in bits per second with `digits` significant digits: '1 Gb/s'."""
    return _scaled(bps, [(1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1, "b/s")], digits)


def format_size_bytes(size: float, digits: int = 4) -> str:
    """Formats a size in bytes with `digits` significant digits and a binary unit: '64 MiB'."""
    return _scaled(size, [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")], digits)


def format_ns(time_ns: float, digits: int = 4) -> str:
    """Formats a time in nanoseconds with `digits` significant digits: '5 ms'."""
    return _scaled(time_ns, [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")], digits)


def format_duration_s(seconds: float) -> str:
    """Formats a duration in seconds for progress output: '2 h 05 min', '4 min 05 s', '38 s'."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class BitsPerSecond(float):
    """A validated link rate in bits per second. Input needs a unit: a number alone is refused."""


class Seconds(float):
    """A validated time in seconds. Input needs a unit: a number alone is refused."""


def _rate(value: object) -> BitsPerSecond:
    return value if isinstance(value, BitsPerSecond) else BitsPerSecond(parse_rate_bps(value))


def _time(value: object) -> Seconds:
    return value if isinstance(value, Seconds) else Seconds(parse_time_s(value))


Rate = Annotated[BitsPerSecond, PlainValidator(_rate), PlainSerializer(lambda v: format_rate_bps(v, 12))]
"""A link rate in bits per second. YAML and JSON hold it as text with a unit."""

SizeBytes = Annotated[int, PlainValidator(parse_size_bytes), PlainSerializer(lambda v: f"{v} B")]
"""A size in bytes. YAML and JSON hold it as text with a unit."""

TimeS = Annotated[Seconds, PlainValidator(_time), PlainSerializer(lambda v: f"{v:.12g} s")]
"""A time in seconds. YAML and JSON hold it as text with a unit."""
