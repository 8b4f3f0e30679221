"""How many messages are timed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from wirecost.collectives import driver
from wirecost.collectives.request import Backend, BenchRequest
from wirecost.spec import Network, validate
from wirecost.spec.presets import named


@pytest.mark.parametrize(
    ("backend", "took_ns", "expected"),
    [
        (Backend.NCCL, 10_000, 200),  # the most there are
        (Backend.NCCL, 1_000_000, 50),  # what the budget allows
        (Backend.NCCL, 4_000_000, 12),
        (Backend.NCCL, 10_000_000, 5),
        (Backend.NCCL, 107_000_000, 1),  # 128 MiB at 10 Gb/s: its own time dwarfs the host's wait
        (Backend.NCCL, 15_000_000, 3),
        (Backend.GLOO, 107_000_000, 1),
    ],
)
def test_messages_per_round(backend: Backend, took_ns: int, expected: int) -> None:
    request = BenchRequest(
        collectives=("all_reduce",), sizes_bytes=(8,), backend=backend, hosts=1, ranks_per_host=2, groups=((0, 1),),
        network=validate(Network, named("network", "loopback"), "network"),
    )  # fmt: skip
    setup: Any = driver.Setup(request, 0, 0, None, *[None] * 3)  # type: ignore[arg-type]
    assert driver._messages_per_round(setup, took_ns) == expected
