"""An iteration that its host launches more slowly than the device goes through it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.model import made
from wirecost.costmodel.host_launch import (
    StageLaunches,
    host_wait_s,
    launches_of_stage,
    tensor_launches_s,
    unit_gathers,
)
from wirecost.costmodel.inputs import Layout, Machine
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.shape import shape_of
from wirecost.prediction.predict import predict
from wirecost.spec import Precision, Workload, load_spec, stack_named, validate
from wirecost.spec.presets import named

STACK = stack_named("generic").with_values(
    {
        "host_issue_s": 0.0,
        "host_issue_once_s": 0.0,
        "host_collective_s": 0.0,
        "run_ahead_s": 0.0,
        "host_shard_s": 0.0,
        "host_forward_s": 1e-3,
        "host_backward_s": 2e-3,
        "host_jitter": 0.0,
    }
)
PLAIN = Layout(tensor=1.0, pipeline=1.0, data=2.0, micro_batch=4.0, accumulation=2.0)
SHARDED = replace(PLAIN, sharding=3.0)


WHOLE = StageLaunches(share=1.0, layers=10.0, gathers=22.0)


def machine(changes: dict[str, float], gpus_per_node: float = np.inf) -> Machine:
    found = machine_of(load_spec("cluster", "dgx-h100"), STACK.with_values(changes), Precision.BF16)
    return replace(found, gpus_per_node=gpus_per_node)


def wait(
    total_s: float,
    waited_s: float,
    layout: Layout = PLAIN,
    share: float = 1.0,
    changes: dict[str, float] | None = None,
    gpus_per_node: float = np.inf,
) -> float:
    on = machine(changes or {}, gpus_per_node)
    return float(host_wait_s(total_s, waited_s, replace(WHOLE, share=share), layout, on).all_s)


def test_what_nobody_told_of_costs_nothing() -> None:
    assert wait(0.001, 0.0) == 0
    assert wait(0.001, 0.0, SHARDED) == 0


def test_the_longer_decides() -> None:
    host = {"host_issue_s": 0.1, "host_issue_once_s": 0.02}
    assert wait(0.3, 0.0, changes=host) == 0
    assert wait(0.15, 0.0, changes=host) == pytest.approx(0.2 + 0.02 - 0.15)
    assert wait(0.15, 0.0, share=0.5, changes=host) == 0  # half of the layers
    # The network's 0.1 of 0.25: the host gains as much of it as a queue holds.
    assert wait(0.25, 0.1, changes=host | {"run_ahead_s": 1.0}) == 0
    assert wait(0.25, 0.1, changes=host | {"run_ahead_s": 0.03}) == pytest.approx(0.22 + 0.07 - 0.25)


def test_a_unit_is_gathered_twice_a_micro_batch_and_the_engines_root_once() -> None:
    gpt, llama, mixtral = (
        shape_of(load_spec("workload", name)) for name in ("gpt-2-medium", "llama-3-8b", "mixtral-8x7b")
    )
    fsdp, engine = (stack_named(name).data_parallel for name in ("fsdp-flash", "engine-cuda"))
    assert unit_gathers(24.0, gpt, fsdp) == 50
    assert unit_gathers(24.0, gpt, engine) == 49
    assert unit_gathers(32.0, llama, fsdp) == 66
    assert unit_gathers(32.0, llama, engine) == 68
    assert unit_gathers(32.0, mixtral, engine, expert_layers=32.0) == 132


def test_fully_sharded_units_are_launched_twice_a_micro_batch() -> None:
    gathers_s = 2 * 2 * 11 * 5e-3
    layers_s = 2 * 10 * 3e-3
    assert wait(0.1, 0.0, SHARDED, changes={"host_shard_s": 5e-3}) == pytest.approx(gathers_s + layers_s - 0.1)
    # It catches up during every wait, however long they are together.
    assert wait(gathers_s + layers_s, 0.2, SHARDED, changes={"host_shard_s": 5e-3}) == 0
    assert wait(0.1, 0.0, replace(SHARDED, data=1.0), changes={"host_shard_s": 5e-3}) == 0
    # Ranks that share a sequence are sharded over as well.
    of_context = wait(0.1, 0.0, replace(SHARDED, data=1.0, context=2.0), changes={"host_shard_s": 5e-3})
    assert of_context == pytest.approx(gathers_s + layers_s - 0.1)


def test_hybrid_sharding_hides_the_network_under_the_last_backward() -> None:
    hybrid = replace(SHARDED, node_sharding=1.0, data=4.0)
    launching_s = 2 * 2 * 11 * 5e-3 + 2 * 10 * 3e-3
    under_s = 2 / 3 * launching_s / 2
    host = {"host_shard_s": 5e-3}
    assert wait(0.1, under_s, hybrid, changes=host) == pytest.approx(launching_s - 0.1)
    two_nodes = wait(0.5, 0.4, hybrid, changes=host, gpus_per_node=2.0)
    assert two_nodes == pytest.approx(launching_s + 0.4 - under_s - 0.5)
    assert wait(0.5, 0.4, hybrid, changes=host, gpus_per_node=4.0) == 0  # one node: nothing goes between


def test_launching_collectives_is_communication() -> None:
    on = machine({"host_issue_s": 0.1, "host_collective_s": 1e-3})
    waits = host_wait_s(0.2, 0.0, replace(WHOLE, collectives=40.0), replace(PLAIN, tensor=2.0), on)
    assert waits.all_s == pytest.approx(2 * (0.1 + 0.04) - 0.2)
    assert waits.tensor_s == pytest.approx(waits.all_s * 0.04 / 0.14)
    assert waits.gather_s == 0
    gathers = host_wait_s(0.1, 0.0, WHOLE, SHARDED, machine({"host_shard_s": 5e-3}))
    assert gathers.gather_s == pytest.approx(gathers.all_s * 0.22 / 0.28)


@pytest.mark.parametrize(("stages", "transfers"), [(1.0, 0), (2.0, 2), (3.0, 4), (8.0, 4)])
def test_a_stage_launches_two_transfers_a_neighbour(stages: float, transfers: int) -> None:
    on = machine({"host_issue_s": 0.1, "host_collective_s": 1e-3})
    waits = host_wait_s(0.1, 0.0, WHOLE, replace(PLAIN, pipeline=stages), on)
    assert waits.all_s == pytest.approx(2 * (0.1 + transfers * 1e-3) - 0.1)
    assert waits.transfer_s == pytest.approx(waits.all_s * transfers * 1e-3 / (0.1 + transfers * 1e-3))
    assert waits.communication_s == waits.transfer_s


@pytest.mark.parametrize("dimension", ["tensor", "pipeline"])
def test_parts_sum_to_the_iteration_of_a_slow_host(dimension: str) -> None:
    split: dict[str, Any] = {f"{dimension}_parallel": 2}
    setup = made("gpt-2-medium", gpus=2, micro_batch=1, global_batch=4, **split)
    # The whole iteration's launches decide, not those of a layer.
    told = {"host_issue_s": 0.1, "host_collective_s": 1e-3, "host_forward_s": 0.0, "host_backward_s": 0.0}
    times = predict(replace(setup, stack=setup.stack.with_values(told))).times
    assert times.tensor_s > 0.1 if dimension == "tensor" else times.pipeline_s > 0.005
    parts = times.compute_s + times.host_s + times.bubble_s + times.exposed_comm_s
    assert parts + times.optimizer_s + times.other_s + times.straggler_s == pytest.approx(times.total_s)


def test_a_pipeline_catches_up_with_its_waits_for_states() -> None:
    setup = made("gpt-2-medium", gpus=2, pipeline_parallel=2, micro_batch=4, global_batch=32)
    stack = setup.stack.with_values({"host_issue_s": 1.0, "run_ahead_s": 0.0})
    times = predict(replace(setup, stack=stack)).times
    assert float(times.pipeline_s) > 0
    assert float(times.embedding_sync_s) > 0
    # Half of the layers, eight times; of what the device waits for, the all-reduce at the end is too long for it.
    transfers_s = 8 * 2 * stack.host.collective_s
    assert transfers_s > 0
    assert float(times.total_s) == pytest.approx(8 * 0.5 * 1.0 + transfers_s + float(times.embedding_sync_s))


def test_the_decoders_stage_launches_more() -> None:
    split = replace(PLAIN, pipeline=2.0, data=1.0)
    t5, gpt = (
        shape_of(validate(Workload, named("workload", name), name)) for name in ("t5-large", "gpt-2-medium")
    )
    assert float(launches_of_stage(0.5, t5, split)) == pytest.approx(1.5 * 24 / (24 + 1.5 * 24))
    short = replace(t5, layers=20.0, decoder_layers=4.0)
    assert float(launches_of_stage(0.5, short, split)) == pytest.approx((8 + 1.5 * 4) / (20 + 1.5 * 4))
    assert float(launches_of_stage(0.5, gpt, split)) == 0.5
    assert float(launches_of_stage(1.0, t5, PLAIN)) == 1.0


def test_many_configurations_at_once() -> None:
    both = replace(PLAIN, sharding=np.array([1.0, 3.0]))
    found = host_wait_s(np.array([0.1, 0.1]), 0.0, WHOLE, both, machine({"host_shard_s": 5e-3}))
    first, second = np.asarray(found.all_s)
    assert first == 0
    assert second > 0


TENSOR = replace(PLAIN, tensor=2.0, data=1.0)
SEQUENCE = replace(TENSOR, sequence_parallel=1.0)
MEASURED = {"host_collective_s": 1e-3, "host_sequence_collective_s": 1e-4, "host_transfer_s": 2e-3}


@pytest.mark.parametrize("stack", ["engine-cuda", "engine-cpu", "megatron-core", "fsdp-flash"])
@pytest.mark.parametrize(
    "plan",
    [
        {"tensor_parallel": 2, "sequence_parallel": True},
        {"tensor_parallel": 2, "pipeline_parallel": 2, "sequence_parallel": True},
        {"pipeline_parallel": 4},
    ],
)
def test_without_a_time_of_its_own_everything_costs_what_a_collective_does(
    stack: str, plan: dict[str, Any]
) -> None:
    setup = made("gpt-2-medium", gpus=8, micro_batch=1, global_batch=64, stack=stack_named(stack), **plan)
    each_s = setup.stack.host.collective_s
    for issue_s in (0.0, 0.1):
        plain = setup.stack.with_values({"host_issue_s": issue_s})
        # Four all-reduces take as long as the ten collectives in their place.
        values = {"host_sequence_collective_s": 0.4 * each_s}
        if issue_s:
            values["host_transfer_s"] = each_s
        before, after = (
            predict(replace(setup, stack=s)).times.total_s for s in (plain, plain.with_values(values))
        )
        assert after == pytest.approx(before, rel=0.02 if "sequence_parallel" in plan else 1e-12)


def test_sequence_parallelism_launches_a_gather_and_a_scatter_and_gathers_again() -> None:
    gpt, llama, mixtral = (
        shape_of(load_spec("workload", name)) for name in ("gpt-2-medium", "llama-3-8b", "mixtral-8x7b")
    )
    host = machine(MEASURED).host
    assert tensor_launches_s(2.0, gpt, TENSOR, host) == (2e-3, 2e-3)
    assert [float(s) for s in tensor_launches_s(2.0, gpt, SEQUENCE, host)] == pytest.approx([4e-4, 6e-4])
    # Both products of a gated MLP share one input.
    assert [float(s) for s in tensor_launches_s(2.0, llama, SEQUENCE, host)] == pytest.approx([4e-4, 6e-4])
    # Experts keep theirs whole.
    assert [float(s) for s in tensor_launches_s(2.0, mixtral, SEQUENCE, host)] == pytest.approx([4e-4, 5e-4])
    assert [float(s) for s in tensor_launches_s(2.0, gpt, PLAIN, host)] == [0, 0]
    assert tensor_launches_s(2.0, gpt, SEQUENCE, machine({"host_collective_s": 1e-3}).host) == (2e-3, 2e-3)


def test_a_slow_host_launches_the_collectives_of_sequence_parallelism() -> None:
    launches = replace(WHOLE, collectives=40.0, sequence_collectives=100.0)
    on = machine({"host_issue_s": 0.1, **MEASURED})
    plain, scattered = (host_wait_s(0.1, 0.0, launches, layout, on) for layout in (TENSOR, SEQUENCE))
    assert plain.all_s == pytest.approx(2 * (0.1 + 40e-3) - 0.1)
    assert scattered.all_s == pytest.approx(2 * (0.1 + 10e-3) - 0.1)
    both = replace(TENSOR, sequence_parallel=np.array([0.0, 1.0]))
    assert np.asarray(host_wait_s(0.1, 0.0, launches, both, on).all_s) == pytest.approx(
        [plain.all_s, scattered.all_s]
    )


@pytest.mark.parametrize("issue_s", [0.0, 0.1])
def test_a_transfer_has_a_time_of_its_own(issue_s: float) -> None:
    on = machine({"host_issue_s": issue_s, **MEASURED})
    stage = replace(PLAIN, pipeline=2.0, data=1.0)
    # Without measured launches of a whole micro-batch, each layer is launched in `forward_s` and `backward_s`.
    launching_s = 2 * ((issue_s or 10 * 3e-3) + 2 * 2e-3)
    assert host_wait_s(0.01, 0.0, WHOLE, stage, on).all_s == pytest.approx(launching_s - 0.01)
    assert host_wait_s(launching_s, 0.0, WHOLE, stage, on).all_s == pytest.approx(0, abs=1e-12)


def test_an_unseen_models_sequence_parallelism_waits_for_its_host() -> None:
    plan: dict[str, Any] = {"tensor_parallel": 2, "sequence_parallel": True, "data_parallel": "all_reduce"}
    setup = made("gpt-2-medium", gpus=2, micro_batch=1, global_batch=4, stack=stack_named("engine-cuda"), **plan)
    slow = {"host_collective_s": 1.0, "host_sequence_collective_s": 1.0, "host_sharpness": 50.0}
    times = predict(replace(setup, stack=setup.stack.with_values(slow))).times
    layers, micro_batches = 24, 4
    assert float(times.total_s) == pytest.approx(micro_batches * layers * 10, rel=0.01)


def launched_s(workload: str, kind: str, **changes: float) -> float:
    """An iteration of 2 GPUs and one micro-batch whose host takes seconds for every layer."""
    stack = stack_named("engine-cuda").with_values(
        {"host_forward_s": 1.0, "host_backward_s": 2.0, "host_sharpness": 50.0, "host_shard_s": 0.0}
        | {"host_transfer_s": 0.0, "host_experts": 1.0, "host_gated": 1.0, **changes}
    )
    setup = made(workload, gpus=2, micro_batch=1, global_batch=2, stack=stack, data_parallel=kind)
    return float(predict(setup).times.total_s)


@pytest.mark.parametrize(
    ("workload", "change", "factor"),
    [
        ("bert-large", {"host_masked": 1.5}, 1.5),
        ("mixtral-8x7b", {"host_experts": 2.0}, 2.0),
        ("gpt-2-medium", {"host_masked": 1.5, "host_experts": 2.0}, 1.0),
    ],
)
def test_fully_sharded_layers_of_another_kind_launch_as_much_more_as_others_do(
    workload: str, change: dict[str, float], factor: float
) -> None:
    layers = load_spec("workload", workload).layers
    for kind in ("all_reduce", "zero3"):
        assert launched_s(workload, kind) == pytest.approx(layers * 3, rel=0.02)
        assert launched_s(workload, kind, **change) == pytest.approx(layers * 3 * factor, rel=0.02)


def test_fully_sharded_layers_with_cross_attention_launch_more() -> None:
    for kind in ("all_reduce", "zero3"):
        assert launched_s("t5-large", kind) == pytest.approx(24 * 3 + 24 * 3 * 1.5, rel=0.02)


def test_recomputation_launches_forward_again() -> None:
    stack = stack_named("engine-cuda").with_values(
        {"host_forward_s": 1.0, "host_backward_s": 2.0, "host_sharpness": 50.0, "host_shard_s": 0.0}
        | {"host_transfer_s": 0.0}
    )
    for kind in ("all_reduce", "zero3"):
        plan: dict[str, Any] = {"data_parallel": kind, "recompute": "full", "stack": stack}
        setup = made("gpt-2-medium", gpus=2, micro_batch=1, global_batch=2, **plan)
        assert float(predict(setup).times.total_s) == pytest.approx(24 * 4, rel=0.02)


def test_a_gated_layer_launches_more() -> None:
    stack = stack_named("engine-cuda").with_values(
        {"host_forward_s": 1.0, "host_backward_s": 2.0, "host_sharpness": 50.0, "host_shard_s": 0.5}
        | {"host_gated": 1.0}
    )
    for workload, layers, gathers, factor in (("gpt-2-medium", 24, 49, 1.0), ("llama-3-8b", 32, 68, 1.5)):
        for kind, gathers_s in (("all_reduce", 0.0), ("zero3", 0.5 * gathers)):
            setup = made(workload, gpus=2, micro_batch=1, global_batch=2, stack=stack, data_parallel=kind)
            plain, gated = (
                predict(replace(setup, stack=each)).times.total_s
                for each in (stack, stack.with_values({"host_gated": 1.5}))
            )
            assert float(plain) == pytest.approx(layers * 3 + gathers_s, rel=0.02)
            assert float(gated) == pytest.approx(layers * 3 * factor + gathers_s, rel=0.02)
