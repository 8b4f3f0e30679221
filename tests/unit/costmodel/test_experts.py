"""The formulas of mixtures of experts against the bytes and parameters that the engine's documentation derives
(docs/how-to/train.md, "Mixtures of experts")."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.model import made
from wirecost.costmodel.experts import expert_forward_s
from wirecost.costmodel.flops import expert_load, layer_work, model_flops
from wirecost.costmodel.inputs import Layout, LinkCosts, Machine, Shape
from wirecost.costmodel.iteration import iterate_memory, rank_experts, rank_parameters
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.setup import layout_of
from wirecost.costmodel.shape import shape_of
from wirecost.costmodel.sharding import expert_data_group, expert_shards
from wirecost.spec import Precision, Workload, stack_named
from wirecost.spec.parameters import count

EXPERTS = {"experts": 8, "top_k": 2, "expert_ffn_hidden": 512, "routing": "balanced"}


def workload(layers: int = 4, **experts: object) -> Workload:
    return Workload.model_validate(
        {
            "name": "moe", "family": "llama", "layers": layers, "hidden": 256, "heads": 4, "ffn_hidden": 1024,
            "vocab_size": 1024, "sequence_length": 128, "mixture_of_experts": {**EXPERTS, **experts},
        }
    )  # fmt: skip


def ideal(stack: str = "engine-cpu", node_Bps: float = 1.0) -> Machine:
    """A machine on which a byte that a rank sends takes a second, on nodes of one GPU."""
    setup = made("gpt-mini", "selene", gpus=8, stack=stack)
    machine = machine_of(setup.cluster, setup.stack, Precision.BF16)
    costs = LinkCosts(efficiency=1.0, latency_s=0.0, step_s=0.0, half_bytes=0.0)
    return replace(machine, intra=costs, inter=costs, gpus_per_node=1.0, intra_Bps=1.0, node_Bps=node_Bps)


def layout(**degrees: float) -> Layout:
    given = {"tensor": 1.0, "pipeline": 1.0, "data": 8.0, "micro_batch": 2.0, "accumulation": 1.0, **degrees}
    return Layout(**given)  # type: ignore[arg-type]


def all_to_all_bytes(shape: Shape, plan: Layout, machine: Machine) -> float:
    tokens = plan.micro_batch * shape.sequence
    return float(expert_forward_s(tokens, shape, plan, machine))


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_both_all_to_alls_of_forward_carry_top_k_copies_of_each_token(ranks: int) -> None:
    shape = shape_of(workload())
    copies = 2 * 128 * 2 * 256 * 2  # sequences x tokens x top_k x hidden x bytes
    sent = all_to_all_bytes(shape, layout(expert=float(ranks)), ideal())
    assert sent == pytest.approx(2 * copies * (ranks - 1) / ranks)


def test_shared_experts_are_not_dispatched() -> None:
    plan = layout(expert=4.0)
    without, with_shared = shape_of(workload()), shape_of(workload(shared_experts=2))
    assert all_to_all_bytes(with_shared, plan, ideal()) == all_to_all_bytes(without, plan, ideal())
    own, other = layer_work(with_shared, plan, sequence=128.0), layer_work(without, plan, sequence=128.0)
    assert own.matrix_flops - other.matrix_flops == pytest.approx(2 * 256 * 2 * 128 * 2 * 3 * 512)


def test_layers_without_experts_exchange_nothing_and_use_their_own_width() -> None:
    plan = layout(expert=4.0)
    half = shape_of(workload(dense_layers=2))
    assert half.moe_share == 0.5
    assert all_to_all_bytes(half, plan, ideal()) == pytest.approx(
        all_to_all_bytes(shape_of(workload()), plan, ideal()) / 2
    )
    every, none = layer_work(shape_of(workload()), plan, sequence=128.0), workload()
    dense = shape_of(none.model_copy(update={"mixture_of_experts": None}))
    mean = layer_work(half, plan, sequence=128.0).matrix_flops
    plain = layer_work(dense, plan, sequence=128.0).matrix_flops
    assert mean == pytest.approx((every.matrix_flops + plain) / 2)


def test_the_mean_layer_times_the_layers_is_the_whole_model() -> None:
    described = workload(layers=6, dense_layers=1, shared_experts=1)
    shape = shape_of(described)
    assert shape.parameters == pytest.approx(count(described).total)
    assert shape.layers * shape.expert_parameters == pytest.approx(5 * 8 * 3 * 256 * 512)


def test_an_expert_has_no_more_places_than_there_are_tokens() -> None:
    most = workload(capacity_factor=1e6).mixture_of_experts
    assert most is not None
    assert shape_of(workload(capacity_factor=1e6)).capacity == most.experts / most.top_k


def test_a_capacity_factor_sets_the_load_and_the_bytes_and_learned_routing_is_uneven() -> None:
    plan = layout(expert=4.0)
    capped = shape_of(workload(capacity_factor=1.5))
    assert float(expert_load(capped, plan)) == 1.5
    assert all_to_all_bytes(capped, plan, ideal()) == pytest.approx(
        1.5 * all_to_all_bytes(shape_of(workload()), plan, ideal())
    )
    assert float(expert_load(shape_of(workload()), plan)) == 1.0
    learned = shape_of(workload(routing="learned"))
    assert float(expert_load(learned, plan)) > 1.0
    assert float(expert_load(learned, layout())) == 1.0  # all experts are on every rank


def test_tensor_ranks_dispatch_the_same_tokens_in_the_engine_and_their_part_in_megatron() -> None:
    shape = shape_of(workload())
    split = layout(tensor=2.0, data=4.0, expert=4.0, sequence_parallel=1.0)
    whole = layout(tensor=1.0, data=4.0, expert=4.0)
    same = replace(ideal("engine-cpu"), gpus_per_node=2.0, node_Bps=2.0)
    assert not same.stack.tensor_parallel.experts_split
    part = replace(same, stack=stack_named("megatron-core"))
    one = replace(ideal("engine-cpu"), gpus_per_node=1.0)
    assert all_to_all_bytes(shape, split, same) == pytest.approx(all_to_all_bytes(shape, whole, one))
    assert all_to_all_bytes(shape, split, part) == pytest.approx(all_to_all_bytes(shape, whole, one) / 2)


@pytest.mark.parametrize(("expert", "shards"), [(1.0, 8.0), (2.0, 4.0), (8.0, 1.0)])
def test_gradients_and_state_of_experts_are_divided_over_the_ranks_that_hold_them(
    expert: float, shards: float
) -> None:
    shape, machine = shape_of(workload()), ideal()
    plan = layout(expert=expert, sharding=1.0)
    assert float(expert_shards(plan)) == shards
    assert float(expert_data_group(plan, machine).size) == shards
    held = float(rank_experts(shape, plan))
    assert held == pytest.approx(4 * 8 * 3 * 256 * 512 / expert)
    total = float(rank_parameters(shape, plan))
    memory = iterate_memory(shape, plan, machine)
    each = machine.stack.memory.optimizer_state_bytes
    assert float(memory.optimizer) == pytest.approx(each * ((total - held) / 8 + held / shards))


def test_experts_over_more_ranks_than_are_data_parallel_are_split_less_by_tensor_parallelism() -> None:
    shape = shape_of(workload())
    plan = layout(tensor=2.0, data=4.0, expert=8.0)
    assert float(rank_experts(shape, plan)) == pytest.approx(4 * 3 * 256 * 512)


def test_model_flops_count_the_experts_that_a_token_uses() -> None:
    described = workload(dense_layers=1, shared_experts=1)
    shape = shape_of(described)
    attention = 2 * 256 * 4 * 256 + 4 * 128 * 256
    mlps = 3 * (2 + 1) * 3 * 512 + 1 * 3 * 1024
    tokens = 8 * 128
    expected = 3 * tokens * (4 * attention + 2 * 256 * mlps + 2 * 256 * 1024)
    assert float(model_flops(shape, batch=8.0)) == pytest.approx(expected)


def test_a_prediction_of_a_mixture_of_experts_is_wider_than_a_dense_ones() -> None:
    from wirecost.prediction.diagnostics import interval_and_diagnostics

    dense = made("llama-3-8b", "dgx-h100", gpus=64, stack="megatron-core")
    experts = made("mixtral-8x7b", "dgx-h100", gpus=64, stack="megatron-core", expert_parallel=8)
    assert interval_and_diagnostics(experts)[0] > 1.5 * interval_and_diagnostics(dense)[0]
    assert layout_of(experts).expert == 8
