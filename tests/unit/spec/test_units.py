from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.units import (
    format_duration_s,
    format_rate_bps,
    format_size_bytes,
    parse_rate_bps,
    parse_size_bytes,
    parse_time_s,
)


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        ("1 Gb/s", 1e9),
        ("100Mbit/s", 1e8),
        ("1.5 Gbps", 1.5e9),
        ("1 GB/s", 8e9),
        ("1 MiB/s", 8 * 2**20),
        ("9 kb/s", 9e3),
    ],
)
def test_rates(text: str, bps: float) -> None:
    assert parse_rate_bps(text) == bps


@pytest.mark.parametrize(
    "text", ["", "1", "-1 Gb/s", "0 Gb/s", "1 Gx/s", "1e999 Gb/s", "nan Gb/s", None, True, [1]]
)
def test_what_is_no_rate(text: object) -> None:
    with pytest.raises(ValueError, match=r"rate|unit"):
        parse_rate_bps(text)


def test_sizes_and_times() -> None:
    assert parse_size_bytes("64 MiB") == 64 << 20
    assert parse_size_bytes("1G") == 1 << 30  # binary, as nccl-tests reads it
    assert parse_size_bytes(8) == 8
    assert parse_time_s("5 ms") == 0.005
    assert parse_time_s("2 min") == 120


@given(st.floats(1, 1e14))
def test_rates_survive_the_yaml_form(bps: float) -> None:
    assert parse_rate_bps(format_rate_bps(bps, 12)) == pytest.approx(bps, rel=1e-11)


def test_for_people() -> None:
    assert format_size_bytes(5 << 20) == "5 MiB"
    assert [format_duration_s(s) for s in (38, 245, 3660)] == ["38 s", "4 min 05 s", "1 h 01 min"]
