"""The cost model charges for exactly the bytes that the engine sends (which are recorded, and held to the same
theory, in tests/integration/train)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

from support.parity import LLAMA, NETWORK, WORKLOADS
from support.traffic import data_parallel, partial_gradients, tensor_parallel
from wirecost.collectives.traffic import ring_bytes_sent
from wirecost.costmodel.gradient_traffic import matrices, powersgd_bytes
from wirecost.costmodel.inputs import Layout, LinkCosts, Machine
from wirecost.costmodel.iteration import iterate
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.pipeline import tied_embedding_s, transfer_s
from wirecost.costmodel.setup import layout_of, setup
from wirecost.costmodel.shape import shape_of
from wirecost.spec import Cluster, Experiment, Link, Plan, Precision, Workload, gpu, stack_named, validate
from wirecost.spec.experiment import Scaling
from wirecost.spec.parameters import count
from wirecost.spec.presets import named
from wirecost.train.models import build_model

TINY = validate(Workload, named("workload", "gpt-tiny"), "workload")
"""Its parameters are multiples of 64 elements, so that no bucket or shard is padded."""
MICRO_BATCH = 2
LATENT = {"kv_rank": 12, "q_rank": 20, "nope_head_dim": 6, "rope_head_dim": 4, "value_head_dim": 8}


def case(workload: Workload, hosts: int = 2, ranks_per_host: int = 1, **plan: Any) -> Experiment:
    made = Plan.model_validate({"name": "plan", **plan})
    ranks = hosts * ranks_per_host
    return Experiment(
        workload=workload,
        plan=made,
        network=NETWORK.model_copy(update={"emulate": None}),
        scaling=Scaling.STRONG,
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        global_batch=4 * MICRO_BATCH * ranks // made.model_parallel,
        micro_batch=MICRO_BATCH,
    )


def one_byte_a_second(run: Experiment) -> tuple[Layout, Machine]:
    """Computing takes no time, a byte that a rank sends one second, and a message nothing else."""
    link = Link(name="link", rate="1 Gb/s", source="test")  # type: ignore[arg-type]
    cluster = Cluster(
        name="cluster",
        gpu=gpu("A100-SXM-80GB"),
        gpus_per_node=run.ranks_per_host,
        nodes=run.hosts,
        intra_node=link,
        inter_node=link,
    )
    stack = stack_named("engine-cpu")
    silent: dict[str, float] = dict.fromkeys(HOST_TIMES, 0.0)
    made = setup(
        run.workload,
        run.plan,
        cluster,
        stack=stack.with_values(silent),
        gpus=run.ranks,
        micro_batch=run.micro_batch,
        global_batch=run.global_batch,
    )
    machine = machine_of(cluster, made.stack, run.plan.precision)
    ideal = LinkCosts(efficiency=1.0, latency_s=0.0, step_s=0.0, half_bytes=0.0)
    return layout_of(made), replace(
        machine,
        intra=ideal,
        inter=ideal,
        peak_flops=1e30,
        attention_peak_flops=1e30,
        memory_Bps=1e30,
        intra_Bps=1.0,
        node_Bps=float(run.ranks_per_host),  # groups side by side each have a NIC's rate
    )


HOST_TIMES = ("host_forward_s", "host_backward_s", "host_vocabulary_s", "host_collective_s", "iteration_s")


def shapes(workload: Workload) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in build_model(workload).named_parameters()}


def data_parallel_cases() -> Iterator[Experiment]:
    for kind in ("all_reduce", "ddp", "zero1", "zero2", "zero3"):
        for overlap in (True, False):
            yield case(TINY, data_parallel=kind, overlap=overlap)
        yield case(TINY, data_parallel=kind, gradient_traffic="bf16")
        yield case(TINY, data_parallel=kind, precision="bf16", hosts=4)
    for kind in ("zero1", "zero2", "zero3"):
        yield case(TINY, data_parallel=kind, sharding_group="node", ranks_per_host=2)
    for traffic in ("int8", "powersgd"):
        yield case(TINY, data_parallel="ddp", gradient_traffic=traffic)
        yield case(TINY, data_parallel="all_reduce", gradient_traffic=traffic, hosts=4)


@pytest.mark.parametrize(
    "run", list(data_parallel_cases()), ids=lambda r: f"{r.plan.data_parallel}-{r.digest[:6]}"
)
def test_data_parallelism(run: Experiment) -> None:
    layout, machine = one_byte_a_second(run)
    times = iterate(shape_of(run.workload), layout, machine)
    charged = float(times.gradient_s + times.parameter_s + times.hidden_comm_s)
    calls = data_parallel(run, shapes(run.workload), gathers=True)
    sent = sum(ring_bytes_sent(op, size, ranks) for op, _, ranks, size in calls)
    assert charged == pytest.approx(sent, rel=1e-9), run.plan


@pytest.mark.parametrize("workload", [TINY, LLAMA, *WORKLOADS.values()], ids=lambda w: w.name)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallelism(workload: Workload, sequence_parallel: bool) -> None:
    run = case(workload, tensor_parallel=2, sequence_parallel=sequence_parallel)
    layout, machine = one_byte_a_second(run)
    times = iterate(shape_of(workload), layout, machine)
    calls = tensor_parallel(workload, run.plan, micro_batch=MICRO_BATCH, micro_batches=run.accumulation)
    sent = sum(n * ring_bytes_sent(op, size, ranks) for (op, _, ranks, size), n in calls.items())
    assert float(times.tensor_s) == pytest.approx(sent, rel=1e-9)
    partial = 4 * partial_gradients(workload) if sequence_parallel else 0  # two ranks send as many bytes each
    assert float(times.gradient_s) == float(times.partial_gradient_s) == pytest.approx(partial, rel=1e-9)


@pytest.mark.parametrize("workload", [TINY, LLAMA, *WORKLOADS.values()], ids=lambda w: w.name)
def test_fitted_stacks_count_no_small_collectives(workload: Workload) -> None:
    run = case(workload, tensor_parallel=2, sequence_parallel=True)
    layout, machine = one_byte_a_second(run)
    costs = machine.stack.tensor_parallel.model_copy(update={"small_collectives": False})
    machine = replace(machine, stack=machine.stack.model_copy(update={"tensor_parallel": costs}))
    times = iterate(shape_of(workload), layout, machine)
    assert float(times.partial_gradient_s) == 0
    assert float(times.rank_parameters) == pytest.approx(count(workload).total / 2)


@pytest.mark.parametrize(
    ("changes", "features"),
    [
        # After attention and after the MLP, and the gradients of their inputs; after shared experts as well. The
        # gradients of the weights of a token's experts are two.
        ({"mixture_of_experts": {"experts": 4, "top_k": 2}}, 4 * LLAMA.hidden + 2),
        ({"mixture_of_experts": {"experts": 4, "top_k": 2, "shared_experts": 1}}, 6 * LLAMA.hidden + 2),
        (
            {"mixture_of_experts": {"experts": 4, "top_k": 2, "shared_experts": 2, "dense_layers": 1}},
            5 * LLAMA.hidden + 1,  # in the mean over a layer with and one without experts
        ),
        # The gradients of what is narrowed, in place of those of attention's input.
        ({"kv_heads": None, "latent_attention": LATENT}, 3 * LLAMA.hidden + 20 + 12 + 4),
        ({"kv_heads": None, "latent_attention": {**LATENT, "q_rank": None}}, 4 * LLAMA.hidden + 12 + 4),
    ],
)
def test_tensor_parallelism_of_experts_and_latent_attention(changes: dict[str, Any], features: int) -> None:
    workload = Workload.model_validate({**LLAMA.model_dump(), **changes})
    run = case(workload, tensor_parallel=2)
    layout, machine = one_byte_a_second(run)
    tokens = run.accumulation * MICRO_BATCH * workload.sequence_length
    numbers = tokens * (workload.layers * features + 2 * workload.hidden + 3)  # and embedding, head and loss
    assert float(iterate(shape_of(workload), layout, machine).tensor_s) == pytest.approx(4 * numbers)


@pytest.mark.parametrize("kind", ["all_reduce", "zero1", "zero2"])
def test_a_pipelines_states_and_tied_embedding(kind: str) -> None:
    run = case(TINY, hosts=4, data_parallel=kind, pipeline_parallel=2)
    layout, machine = one_byte_a_second(run)
    shape = shape_of(TINY)
    state = MICRO_BATCH * TINY.sequence_length * TINY.hidden * 4
    assert float(transfer_s(layout.micro_batch * shape.sequence, shape, layout, machine)) == state
    shards = 1 if kind == "all_reduce" else 2
    assert (
        float(tied_embedding_s(shape.embedding_parameters, layout, 4.0, machine))
        == TINY.vocab_size * TINY.hidden * 4 / shards
    )


@pytest.mark.parametrize("workload", [*WORKLOADS.values(), LLAMA, TINY], ids=lambda w: w.name)
def test_low_rank_factors_of_every_family(workload: Workload) -> None:
    real = sorted(shape for shape in shapes(workload).values() if len(shape) == 2)
    assert sorted((r, c) for r, c, times in matrices(workload) for _ in range(times)) == real
    run = case(workload, data_parallel="all_reduce", gradient_traffic="powersgd")
    sent = sum(size for _, _, _, size in data_parallel(run, shapes(workload), gathers=True))
    assert powersgd_bytes(workload, run.plan.powersgd_rank) * count(workload).total == pytest.approx(sent)


def test_half_precision_gradients_are_two_bytes() -> None:
    run = case(TINY, data_parallel="ddp", precision=Precision.FP16)
    layout, machine = one_byte_a_second(run)
    assert float(iterate(shape_of(TINY), layout, machine).gradient_s) == pytest.approx(2 * count(TINY).total)
