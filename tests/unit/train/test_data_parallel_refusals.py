"""Data-parallel plans that can't work are refused, with what would."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from wirecost.spec import DataParallel, GradientTraffic, Plan
from wirecost.train.parallel import unsupported


@pytest.mark.parametrize("data_parallel", [DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3])
@pytest.mark.parametrize("traffic", [GradientTraffic.INT8, GradientTraffic.POWERSGD])
def test_reduce_scattered_gradients_are_not_compressed_to_what_cannot_be_summed(
    data_parallel: DataParallel, traffic: GradientTraffic
) -> None:
    reason = unsupported(Plan(name="p", data_parallel=data_parallel, gradient_traffic=traffic))
    assert reason is not None
    assert f"{data_parallel} reduce-scatters gradients" in reason
    assert "use data_parallel all_reduce or ddp" in reason


def test_sharding_within_a_node_needs_something_to_shard() -> None:
    reason = unsupported(Plan(name="p", data_parallel=DataParallel.DDP, sharding_group="node"))
    assert reason is not None
    assert "sharding_group node needs something to shard: data_parallel zero1, zero2, zero3, not ddp" in reason
