"""Latent attention, sliding windows and multi-token prediction against published figures and brute force."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.model import made, predicted, seconds
from wirecost.costmodel.flops import attended_share, layer_work, model_flops, window_scores
from wirecost.costmodel.iteration import iterate, rank_parameters
from wirecost.costmodel.memory import layer_activation_bytes
from wirecost.costmodel.setup import layout_of
from wirecost.costmodel.shape import shape_of
from wirecost.costmodel.vectorised import stacked_layout, stacked_shape
from wirecost.prediction.predict import predict
from wirecost.spec import Workload, load_spec
from wirecost.spec.parameters import count


def workload(name: str, **changes: Any) -> Workload:
    return Workload.model_validate({**load_spec("workload", name).model_dump(exclude_none=True), **changes})


@pytest.mark.parametrize(
    ("name", "gflops"), [("deepseek-v2", 155), ("deepseek-v3", 250), ("llama-3.1-405b", 2448)]
)
def test_operations_of_a_token_are_the_published_ones(name: str, gflops: float) -> None:
    """Zhao et al. 2025 (arXiv:2505.09343, table 2): training operations of a token with sequences of 4096 tokens, of
    which a causal mask computes half the scores, without multi-token prediction."""
    shape = shape_of(workload(name, sequence_length=4096, multi_token_prediction=0))
    scores = shape.layers * 3 * 4 * shape.sequence * shape.query
    token = model_flops(shape, batch=1.0) / shape.sequence - scores / 2
    assert token == pytest.approx(gflops * 1e9, rel=0.03)


def test_latent_attention_computes_scores_of_its_own_sizes() -> None:
    """DeepSeek-V3 has 128 heads with queries and keys of 192 and values of 128."""
    setup = made("deepseek-v3", gpus=64, expert_parallel=8, data_parallel="zero3", global_batch=64)
    shape = shape_of(setup.workload)
    work = layer_work(shape, layout_of(setup), sequence=4096.0)
    assert work.attention_flops == pytest.approx(2 * 4096 * 4096 * 128 * (192 + 128))
    weights = shape.latent_split + shape.latent_whole
    norms = 512 + 1536
    latent = setup.workload.latent_attention
    assert latent is not None
    assert weights + norms == 187_107_328  # 7168 x 1536, 1536 x 24576, 7168 x 576, 512 x 32768, 16384 x 7168


def test_tensor_parallelism_splits_heads_but_not_the_vectors_of_low_rank() -> None:
    alone = made("deepseek-v2-lite", gpus=8, data_parallel="zero1")
    split = made("deepseek-v2-lite", gpus=8, data_parallel="zero1", tensor_parallel=4)
    shape = shape_of(alone.workload)
    whole, quarter = (float(rank_parameters(shape, layout_of(each))) for each in (alone, split))
    replicated = float(shape.layers * shape.latent_whole)
    assert replicated == 27 * 2048 * (512 + 64)
    # The norms of layers, narrow vectors and the output, and the routers of 64 experts.
    norms_and_routers = float(shape.layers * shape.whole + shape.whole_ends)
    assert norms_and_routers == 27 * (2 * 2048 + 512) + 2048 + 26 * 64 * 2048
    replicated += norms_and_routers
    assert quarter == pytest.approx((whole - replicated) / 4 + replicated)
    layout = layout_of(split)
    plain = layer_work(shape, layout, sequence=2048.0).matrix_flops
    layout.sequence_parallel = 1.0
    assert plain - layer_work(shape, layout, sequence=2048.0).matrix_flops == pytest.approx(
        2 * 2048 * shape.latent_whole * 3 / 4
    )


def test_latent_attention_keeps_heads_and_the_vectors_of_low_rank() -> None:
    setup = made("deepseek-v3", gpus=64, expert_parallel=8, data_parallel="zero3", global_batch=64)
    shape, machine = shape_of(setup.workload), predict(setup).machine
    ordinary = replace(shape, latent_width=0.0)
    layout = layout_of(setup)
    more = layer_activation_bytes(4096.0, None, shape, layout, machine) - layer_activation_bytes(
        4096.0, None, ordinary, layout, machine
    )
    # Both vectors before and after their norms, and the shared part of the keys, in two bytes.
    assert more == pytest.approx(4096 * 2 * (2 * 512 + 2 * 1536 + 64))
    # Queries and keys of 192 features, values and outputs of 128.
    assert 4 * shape.query + 4 * shape.key_value == 2 * 128 * (2 * 192 + 2 * 128)


@given(sequence=st.integers(1, 60), window=st.integers(1, 80), causal=st.booleans())
def test_scores_inside_a_window_are_those_of_the_mask(sequence: int, window: int, causal: bool) -> None:
    shape = shape_of(workload("mistral-7b", sequence_length=sequence, sliding_window=window))
    shape = replace(shape, causal=float(causal))
    places = np.arange(sequence)
    distance = places[:, None] - places[None, :]
    if causal:
        inside = (distance >= 0) & (distance < window)
        assert window_scores(shape, float(sequence)) == pytest.approx(inside.sum() / (distance >= 0).sum())
    else:
        # Half the window on each side; the ends of a sequence have fewer.
        inside = np.abs(distance) * 2 <= window - 1
        assert window_scores(shape, float(sequence)) >= inside.mean() - 1 / sequence


@pytest.mark.parametrize(
    ("name", "full", "window"),
    [("gpt-oss-120b", 18, 128), ("gemma-2-27b", 23, 4096), ("mistral-7b", 0, 4096), ("modernbert-large", 10, 128)],
)
def test_layers_with_a_window_compute_fewer_scores(name: str, full: int, window: int) -> None:
    shape = shape_of(workload(name, sequence_length=16384))
    assert shape.window == window
    assert shape.window_share == pytest.approx(1 - full / float(shape.layers))
    expected = full / float(shape.layers) + float(shape.window_share) * float(window_scores(shape, 16384.0))
    assert attended_share(shape) == pytest.approx(expected)


def test_a_window_saves_time_with_fused_attention_only_and_never_costs_any() -> None:
    def time(stack: str, window: int | None) -> float:
        given_workload = workload("llama-3-8b", sequence_length=32768, sliding_window=window)
        one = made("llama-3-8b", gpus=8, stack=stack, data_parallel="zero3", recompute="full")
        return predict(replace(one, workload=given_workload)).total_s

    times = [time("fsdp-flash", window) for window in (128, 1024, 4096, 32768, 100_000, None)]
    assert times == sorted(times)
    assert times[0] < 0.7 * times[-1]
    assert times[-2] == times[-3] == pytest.approx(times[-1])
    assert time("generic-unfused", 1024) == time("generic-unfused", None)


def test_a_module_of_multi_token_prediction_has_the_published_size() -> None:
    """DeepSeek-V3 (arXiv:2412.19437 and its repository's README_WEIGHTS): 671 billion parameters without the module,
    which has 11.5 billion of its own and shares 0.9 billion each with embedding and output layer."""
    parts = count(load_spec("workload", "deepseek-v3"))
    assert parts.total == pytest.approx(671e9, rel=0.001)
    assert parts.prediction_module == pytest.approx(11.5e9, rel=0.01)
    assert parts.prediction_module + 2 * parts.embedding == pytest.approx(14e9, rel=0.05)
    shape = shape_of(load_spec("workload", "deepseek-v3"))
    assert shape.parameters == parts.total + parts.prediction_module


def test_modules_are_on_the_last_stage_and_take_the_time_of_a_layer_and_an_output_layer() -> None:
    def total(modules: int, pp: int, name: str = "llama-3-8b") -> float:
        one = made(name, gpus=8, pipeline_parallel=pp, data_parallel="zero1", global_batch=64)
        return predict(replace(one, workload=workload(name, multi_token_prediction=modules))).total_s

    # On one stage a module adds at least one of 32 layers and half of both ends.
    alone = total(1, 1) / total(0, 1)
    assert 1 + 1 / 33 < alone < 1.2
    # The module is on the last of four stages. All other stages wait for it, so its share of the iteration grows.
    assert total(1, 4) / total(0, 4) > alone
    assert total(2, 4) > total(1, 4)


def test_modules_that_replace_layers_of_the_last_stage_cost_less() -> None:
    def added(layers: int) -> float:
        one = made("llama-3-8b", gpus=8, pipeline_parallel=4, data_parallel="zero1", global_batch=64)
        plain = workload("llama-3-8b", layers=layers)
        more = workload("llama-3-8b", layers=layers, multi_token_prediction=1)
        return predict(replace(one, workload=more)).total_s - predict(replace(one, workload=plain)).total_s

    assert added(31) < added(32)


def test_modules_count_in_memory_flops_and_parameters_of_the_last_rank() -> None:
    one = predicted("deepseek-v3", gpus=256, expert_parallel=32, pipeline_parallel=8, data_parallel="zero1")
    without = replace(one.setup, workload=workload("deepseek-v3", multi_token_prediction=0))
    other = predict(without)
    assert float(one.times.rank_parameters) > float(other.times.rank_parameters)
    assert float(one.memory.total) > float(other.memory.total)
    # A module is one of 61 layers of 1/256 of the tokens' work, an output layer and a join of two vectors.
    assert 1.01 < float(model_flops(one.shape, batch=1.0) / model_flops(other.shape, batch=1.0)) < 1.06


def test_arrays_of_models_are_predicted_as_each_alone() -> None:
    names = ("deepseek-v3", "gpt-oss-120b", "mistral-7b", "llama-3-8b")
    setups = [made(name, gpus=64, tensor_parallel=2, data_parallel="zero1", global_batch=64) for name in names]
    machine = predict(setups[0]).machine
    shapes, layouts = [shape_of(s.workload) for s in setups], [layout_of(s) for s in setups]
    layouts[1].sequence_parallel = layouts[1].tensor_overlap = 1.0
    together = iterate(stacked_shape(shapes), stacked_layout(layouts), machine)
    assert np.shape(together.total_s) == (len(names),)
    for index, (shape, layout) in enumerate(zip(shapes, layouts, strict=True)):
        alone = iterate(shape, layout, machine)
        assert together.total_s[index] == pytest.approx(float(alone.total_s), rel=1e-9)  # type: ignore[index]


def test_parts_of_models_widen_the_interval_and_say_so() -> None:
    plain = predicted("llama-3-8b", gpus=8, data_parallel="zero3")
    for changes, word in (
        ({"sliding_window": 512}, "sliding_window 512"),
        ({"multi_token_prediction": 1}, "multi"),
    ):
        one = predict(replace(plain.setup, workload=workload("llama-3-8b", **changes)))
        found = [d for d in one.breakdown.diagnostics if d.code == "uncalibrated_model"]
        assert word in found[0].message
        assert one.breakdown.interval is not None and plain.breakdown.interval is not None
        ratios = [b.interval.high_ns / b.interval.low_ns for b in (one.breakdown, plain.breakdown) if b.interval]
        assert ratios[0] > ratios[1]
    assert seconds(plain) > 0


def test_the_published_speed_of_training_deepseek_v3_lies_in_the_interval() -> None:
    """A trillion tokens took 180,000 hours of an H800 (arXiv:2412.19437, section 1): 1,543 tokens/s."""
    one = predicted(
        "deepseek-v3", "hgx-h800", gpus=2048, pipeline_parallel=16, expert_parallel=64, pipeline_schedule="dualpipe",
        data_parallel="zero1", matrix_precision="fp8-blockwise", global_batch=15360, stack="megatron-core",
    )  # fmt: skip
    interval = one.breakdown.interval
    assert interval is not None
    measured_ns = 15360 * 4096 / (1e12 / (180e3 * 3600) * 2048) * 1e9
    assert interval.low_ns < measured_ns < interval.high_ns
