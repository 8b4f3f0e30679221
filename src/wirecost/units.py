"""Quantities as people write them ("1 Gb/s", "64 MiB", "90 s") and back.

Inside the package rates are bits per second for links (`_bps`), bytes per second for memory and collectives
(`_Bps`), sizes bytes, times integer nanoseconds or seconds (`_s`).
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


def _parse(text: object, table: dict[str, float] | dict[str, int], kind: str, example: str) -> float:
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
    if unit not in table:
        raise ValueError(f"'{text}' needs a unit that a {kind} has, as in '{example}'")
    value = number * table[unit]
    if not math.isfinite(value):
        raise ValueError(f"'{text}' is not a finite {kind}")
    return value


def parse_rate_bps(text: object) -> float:
    """'1 Gb/s' -> 1e9. Bits with b, bytes with B. Raises ValueError unless positive, finite and with a unit."""
    value = _parse(text, _RATE_BPS, "rate", "1 Gb/s")
    if value <= 0:
        raise ValueError(f"a rate must be positive, not '{text}'")
    if not _LOWEST_BPS <= value <= _HIGHEST_BPS:
        raise ValueError(f"'{text}' can't be a rate: expected one from 1 b/s to 1e18 b/s")
    return value


def parse_size_bytes(text: object) -> int:
    """'64 MiB' -> 67108864; K, M and G alone are binary, as in nccl-tests. Raises ValueError if not a size."""
    value = round(_parse(text, _SIZE_BYTES, "size", "64 MiB"))
    if value >= _HIGHEST_BYTES:
        raise ValueError(f"'{text}' can't be a size: expected one below {_HIGHEST_BYTES >> 60} EiB")
    return value


def parse_time_s(text: object) -> float:
    """'5 ms' -> 0.005. Raises ValueError unless it is a time with a unit."""
    return _parse(text, _TIME_S, "time", "5 ms")


def _scaled(value: float, steps: list[tuple[float, str]], digits: int) -> str:
    for factor, unit in steps:
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {unit}"
    factor, unit = steps[-1]
    return f"{value / factor:.{digits}g} {unit}"


def format_rate_bps(bps: float, digits: int = 4) -> str:
    return _scaled(bps, [(1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1, "b/s")], digits)


def format_size_bytes(size: float, digits: int = 4) -> str:
    return _scaled(size, [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")], digits)


def format_ns(time_ns: float, digits: int = 4) -> str:
    return _scaled(time_ns, [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")], digits)


def format_duration_s(seconds: float) -> str:
    """For people who wait: '4 min 05 s', '38 s'."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class BitsPerSecond(float):
    """A validated link rate. A bare number is refused where a rate is read: it would hide its unit."""


class Seconds(float):
    """A validated time."""


def _rate(value: object) -> BitsPerSecond:
    return value if isinstance(value, BitsPerSecond) else BitsPerSecond(parse_rate_bps(value))


def _time(value: object) -> Seconds:
    return value if isinstance(value, Seconds) else Seconds(parse_time_s(value))


Rate = Annotated[BitsPerSecond, PlainValidator(_rate), PlainSerializer(lambda v: format_rate_bps(v, 12))]
"""A link rate in bits per second; text with a unit in YAML and JSON."""

TimeS = Annotated[Seconds, PlainValidator(_time), PlainSerializer(lambda v: f"{v:.12g} s")]
"""A time in seconds; text with a unit in YAML and JSON."""
