"""The model's buckets are those of the engine: of whole parameters, however large one is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from support.model import made
from support.parity import LLAMA, WORKLOADS
from wirecost.costmodel.buckets import bucket_arrays, buckets_of, is_described, sizes_of, units_of
from wirecost.costmodel.setup import layout_of
from wirecost.prediction.predict import predict
from wirecost.spec import MixtureOfExperts, Plan, Workload, stack_named
from wirecost.train.models import build_model
from wirecost.train.parallel.buckets import ALIGNMENT, into_buckets
from wirecost.train.parallel.stages import stage_of_units

TIED = Workload(name="tied", layers=4, hidden=128, heads=4, vocab_size=4096, sequence_length=64)
UNTIED = LLAMA.model_copy(update={"hidden": 64, "vocab_size": 2048})
LIMIT = 100_000
"""Bytes of a bucket. The embedding of TIED has 2 MiB."""


def engine_bytes(workload: Workload, limit: int, **alignment: int) -> list[int]:
    buckets = into_buckets(list(build_model(workload).parameters()), limit, **alignment)
    return [4 * bucket.size for bucket in buckets]


def model_bytes(workload: Workload, limit: int) -> list[float]:
    parameters = [p for unit in units_of(workload) for p in unit.parameters]
    return sizes_of([(4 * p.elements, False) for p in parameters], limit)


@pytest.mark.parametrize("workload", [*WORKLOADS.values(), LLAMA, UNTIED, TIED], ids=lambda w: w.name)
@pytest.mark.parametrize("limit", [1, 1000, 20_000, LIMIT, 1 << 30])
def test_the_sizes_are_those_of_the_engine(workload: Workload, limit: int) -> None:
    assert model_bytes(workload, limit) == engine_bytes(workload, limit)


def test_an_embedding_larger_than_a_bucket_is_one_message() -> None:
    sizes = engine_bytes(TIED, LIMIT)
    # ZeRO aligns parameters, which these need not.
    assert engine_bytes(TIED, LIMIT, alignment=ALIGNMENT, multiple_of=2 * ALIGNMENT) == sizes
    assert sizes[-1] > 4 * TIED.vocab_size * TIED.hidden > 20 * LIMIT
    assert min(sizes[:-1]) >= LIMIT
    found = buckets_of(TIED, 1, 1, 1, 4, LIMIT)
    assert found is not None
    assert found.mean_bytes == sum(sizes) / len(sizes)
    assert found.last_bytes == sizes[-1]


@pytest.mark.parametrize("kind", ["ddp", "zero1", "zero2"])
def test_the_model_sends_as_many_messages_as_the_engine(kind: str) -> None:
    sizes = engine_bytes(TIED, LIMIT)
    setup = made("gpt-tiny", gpus=2, data_parallel=kind, bucket_bytes=LIMIT, precision="fp32", micro_batch=1)
    setup = replace(setup, workload=TIED, stack=stack_named("engine-cuda"))
    layout = layout_of(setup)
    assert sum(sizes) / layout.mean_bucket_bytes == pytest.approx(len(sizes))
    # A message of a second, and bytes that take none: what is not hidden is the number of messages.
    machine = predict(setup).machine
    slow = replace(machine.intra, latency_s=1.0, step_s=0.0, half_bytes=0.0, efficiency=1.0)
    messages = data_parallel_s(setup, replace(machine, intra=slow, intra_Bps=1e30, curves=()))
    rounds = layout.accumulation if kind == "zero2" else 1
    assert messages == pytest.approx(len(sizes) * (rounds + (kind != "ddp")), rel=1e-6)


def data_parallel_s(setup: Any, machine: Any) -> float:
    from wirecost.costmodel.dataparallel import Cover, data_parallel
    from wirecost.costmodel.iteration import held_parameters
    from wirecost.costmodel.shape import shape_of

    shape, layout = shape_of(setup.workload), layout_of(setup)
    parameters = held_parameters(shape.layers, shape, layout)
    return float(data_parallel(parameters, Cover(0.0, 0.0), layout, machine).total_s)


@pytest.mark.parametrize("plan", [{"pipeline_parallel": 2}, {"tensor_parallel": 2}, {"overlap": False}])
@pytest.mark.parametrize("kind", ["ddp", "zero1", "zero2"])
def test_which_plans_have_buckets(kind: str, plan: dict[str, Any]) -> None:
    setup = made("gpt-tiny", gpus=4, data_parallel=kind, precision="fp32", micro_batch=1, **plan)
    layout = layout_of(replace(setup, stack=stack_named("engine-cuda")))
    assert (layout.mean_bucket_bytes > 0) == (kind != "zero1" or "overlap" not in plan)
    assert layout_of(replace(setup, stack=stack_named("megatron-core"))).mean_bucket_bytes == 0


@pytest.mark.parametrize("workload", [TIED, UNTIED.model_copy(update={"layers": 4})], ids=lambda w: w.name)
def test_a_tied_embedding_has_a_bucket_of_its_own_on_a_stage(workload: Workload) -> None:
    model = build_model(workload)
    stages = stage_of_units(model, 2)
    sizes = []
    for rank in (0, 1):
        units = [unit for stage, unit in zip(stages, model.units, strict=True) if stage == rank]
        parameters = list(dict.fromkeys(p for unit in units for p in unit.parameters()))
        for parameter in parameters:
            parameter.tied_across_stages = workload.tied_embeddings and parameter.shape[0] == workload.vocab_size  # type: ignore[attr-defined]
        sizes.append([4 * bucket.size for bucket in into_buckets(parameters, LIMIT)])
    fullest = max(sizes, key=sum)
    found = buckets_of(workload, 1, 2, 1, 4, LIMIT)
    assert found is not None
    assert found.mean_bytes == pytest.approx(sum(fullest) / len(fullest))


def test_a_model_with_experts_keeps_the_size_of_the_plan() -> None:
    experts = TIED.model_copy(update={"mixture_of_experts": MixtureOfExperts(experts=4, top_k=1)})
    assert not is_described(experts)
    assert buckets_of(experts, 1, 1, 1, 4, LIMIT) is None
    assert bucket_arrays(experts, (1, 1, 1), 4, LIMIT) == (0, 0)


def test_many_configurations_at_once() -> None:
    degrees = (np.array([1, 2, 1, 1]), np.array([1, 1, 2, 1]), np.array([1, 1, 1, 1]))
    mean, last = bucket_arrays(TIED, degrees, 2, np.array([1e5, 1e5, 1e5, 2e5]))
    for index, (tensor, pipeline, limit) in enumerate([(1, 1, 1e5), (2, 1, 1e5), (1, 2, 1e5), (1, 1, 2e5)]):
        found = buckets_of(TIED, tensor, pipeline, 1, 2, limit)
        assert found is not None
        assert (np.asarray(mean)[index], np.asarray(last)[index]) == (found.mean_bytes, found.last_bytes)


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 3000),
)
def test_every_parameter_is_in_a_bucket(parameters: list[tuple[int, bool]], limit: int) -> None:
    sizes = sizes_of(parameters, limit)
    assert sum(sizes) == sum(size for size, _ in parameters)
    if not any(alone for _, alone in parameters):
        assert all(size >= limit for size in sizes[:-1])


def test_a_plan_without_the_engine_has_no_such_buckets() -> None:
    assert Plan(name="p").bucket_bytes == 25 << 20
    for name in ("pytorch-ddp", "megatron-core", "fsdp-flash"):
        assert stack_named(name).data_parallel.buckets != "whole"
