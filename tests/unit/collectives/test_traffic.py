from __future__ import annotations

import pytest

from wirecost.collectives.traffic import ring_bytes_sent, ring_transfer_s


@pytest.mark.parametrize(
    ("op", "ranks", "expected"),
    [
        ("all_reduce", 2, 100),
        ("all_reduce", 4, 150),
        ("all_gather", 4, 75),
        ("broadcast", 4, 100),
        ("all_reduce", 1, 0),
    ],
)
def test_bytes_each_rank_sends(op: str, ranks: int, expected: float) -> None:
    assert ring_bytes_sent(op, 100, ranks) == expected


def test_bits_and_bytes_are_not_mixed_up() -> None:
    assert ring_transfer_s("all_reduce", 125_000_000, 2, 1e9) == 1.0


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown collective 'allreduce'"):
        ring_bytes_sent("allreduce", 1, 2)
