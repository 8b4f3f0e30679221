"""Tests the groups of ranks that share one copy of the state, and how ZeRO-1 sends it."""

from __future__ import annotations

import numpy as np
import pytest

from support.model import made
from wirecost.costmodel.inputs import Layout
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.setup import layout_of
from wirecost.costmodel.sharding import state_shards
from wirecost.prediction.predict import predict
from wirecost.spec import stack_named

MACHINE = machine_of(made(gpus=64).cluster, stack_named("generic"), made(gpus=64).plan.precision)


@pytest.mark.parametrize(
    ("tensor", "context", "data", "node", "shards"),
    [
        (1, 1, 64, 0, 64),
        (1, 1, 64, 1, 8),
        (2, 1, 32, 1, 4),  # of a node's 8 GPUs, each second one
        (4, 2, 8, 1, 2),
        (8, 1, 8, 1, 1),  # a node holds one rank of the group
        (2, 2, 16, 0, 32),
        (1, 1, 4, 1, 4),
    ],
)
def test_hybrid_sharding_shards_over_the_ranks_that_a_node_has(
    tensor: int, context: int, data: int, node: int, shards: int
) -> None:
    layout = Layout(float(tensor), 1.0, float(data), 1.0, 1.0, context=float(context), node_sharding=float(node))
    assert float(state_shards(layout, MACHINE)) == shards


def test_shards_of_many_layouts_are_those_of_each() -> None:
    tensor = np.array([1.0, 2.0, 4.0, 8.0])
    layout = Layout(tensor, 1.0, 64.0 / tensor, 1.0, 1.0, node_sharding=np.array([1.0, 1.0, 0.0, 1.0]))
    assert np.asarray(state_shards(layout, MACHINE)).tolist() == [8, 4, 16, 1]


def test_optimizer_memory_inside_nodes_is_that_of_the_shard() -> None:
    # 8.03e9 parameters, 12 bytes each: over 64 ranks 1.5e9 bytes, over the 4 that a node has with TP 2 12e9.
    inside = predict(made(gpus=64, tensor_parallel=2, data_parallel="zero1", sharding_group="node"))
    everywhere = predict(made(gpus=64, tensor_parallel=2, data_parallel="zero1"))
    rank_parameters = float(inside.times.rank_parameters)
    per_parameter = inside.machine.stack.memory.optimizer_state_bytes
    assert float(inside.memory.optimizer) == pytest.approx(per_parameter * rank_parameters / 4)
    assert float(everywhere.memory.optimizer) == pytest.approx(per_parameter * rank_parameters / 32)
    assert float(inside.times.optimizer_s) == pytest.approx(8 * float(everywhere.times.optimizer_s))


def test_owned_tensors_cost_latency_that_grows_with_the_ranks() -> None:
    """Broadcasts of single tensors wait for every rank of the ring, as InternEvo's do: 7.2 s over 1,024 ranks and
    4.5 s inside nodes were measured (InternEvo's performance page)."""
    stack = stack_named("internevo")
    times = {}
    for owned in (False, True):
        changed = stack.with_values({"owned_tensors": owned})
        for gpus in (64, 1024):
            setup = made("llama-2-7b", "dgx-a100-80gb", gpus=gpus, data_parallel="zero1", stack=changed)
            times[owned, gpus] = predict(setup).total_s
    assert times[True, 1024] - times[True, 64] > 4 * (times[False, 1024] - times[False, 64])


def test_owners_are_no_more_than_the_ranks_of_a_group() -> None:
    setup = made("llama-2-7b", "dgx-a100-80gb", gpus=8, data_parallel="zero1", stack=stack_named("internevo"))
    assert float(layout_of(setup).data) == 8
    # 8 messages of an eighth each take little more than whole ones.
    whole = predict(made("llama-2-7b", "dgx-a100-80gb", gpus=8, data_parallel="zero1", stack="generic"))
    assert predict(setup).total_s < 2 * whole.total_s
