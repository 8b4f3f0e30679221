"""Predictions: sums, limits, monotonicity, refusals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.model import comm_fraction, made, predicted, seconds
from wirecost.breakdown import Source
from wirecost.costmodel.setup import layout_of
from wirecost.errors import SpecError
from wirecost.prediction.predict import largest_micro_batch, predict

PARTS = (
    "compute_s",
    "host_s",
    "bubble_s",
    "tensor_s",
    "context_expert_s",
    "pipeline_s",
    "gradient_s",
    "parameter_s",
    "embedding_sync_s",
    "optimizer_s",
    "other_s",
    "straggler_s",
)

layouts = st.fixed_dictionaries(
    {
        "tensor_parallel": st.sampled_from([1, 2, 4, 8]),
        "pipeline_parallel": st.sampled_from([1, 2, 4]),
        "gpus": st.sampled_from([32, 64, 256]),
        "micro_batch": st.sampled_from([1, 2, 4]),
        "data_parallel": st.sampled_from(["all_reduce", "ddp", "zero1", "zero2", "zero3"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "sequence_parallel": st.booleans(),
        "stack": st.sampled_from(
            ["megatron-lm-2021", "megatron-core", "fsdp-flash", "torchtitan", "generic", "engine-cuda"]
        ),
    }
)


@given(layouts)
@settings(max_examples=60, deadline=None)
def test_parts_sum_to_the_iteration_and_are_not_negative(options: dict) -> None:
    result = predicted(**options)
    parts = [float(getattr(result.times, name)) for name in PARTS]
    assert min(parts) >= -1e-12
    assert sum(parts) == pytest.approx(seconds(result), rel=1e-9)
    split = result.breakdown.iterations[0].parts
    assert split.window_ns == pytest.approx(seconds(result) * 1e9, abs=1)
    assert sum(result.breakdown.iterations[0].phases.values()) == pytest.approx(split.window_ns, abs=5)
    assert result.breakdown.source is Source.PREDICTED


@given(layouts, st.floats(1.0, 50.0))
@settings(max_examples=60, deadline=None)
def test_a_faster_network_never_slows_down(options: dict, factor: float) -> None:
    slow = predicted(bandwidth="200 Gb/s", **options)
    fast = predicted(bandwidth=f"{200 * factor:.3f} Gb/s", **options)
    assert seconds(fast) <= seconds(slow) * (1 + 1e-9)
    assert comm_fraction(fast) <= comm_fraction(slow) + 1e-9


def test_one_gpu_communicates_nothing() -> None:
    result = predicted("gpt-2-medium", "thetagpu-80", gpus=1, micro_batch=2)
    assert float(result.times.exposed_comm_s) == 0
    assert result.breakdown.comm_fraction().median == 0  # type: ignore[union-attr]
    assert result.breakdown.collectives == ()


def test_recomputing_costs_time_and_saves_memory() -> None:
    plain, full = predicted(gpus=8), predicted(gpus=8, recompute="full")
    assert 1.1 < seconds(full) / seconds(plain) < 1.4
    assert float(full.memory.activations) < 0.5 * float(plain.memory.activations)


def test_each_zero_stage_holds_less() -> None:
    totals = [
        float(predicted(gpus=64, data_parallel=stage, stack="generic").memory.total)
        for stage in ("ddp", "zero1", "zero2", "zero3")
    ]
    assert totals == sorted(totals, reverse=True)


def test_the_bubble_is_the_formulas() -> None:
    # (p - 1) / m of the busy time with even stages, divided by v when interleaved (arXiv:2104.04473, section 2.2).
    options = {
        "gpus": 8,
        "tensor_parallel": 1,
        "pipeline_parallel": 8,
        "global_batch": 64,
        "stack": "megatron-lm-2021",
        "cluster": "selene",
    }
    plain = predicted("gpt-3-175b", **options)
    chunked = predicted("gpt-3-175b", virtual_stages=4, **options)
    busy = seconds(plain) - sum(
        float(getattr(plain.times, p))
        for p in ("bubble_s", "pipeline_s", "optimizer_s", "other_s", "embedding_sync_s", "straggler_s")
    )
    assert float(plain.times.bubble_s) / busy == pytest.approx(7 / 64, rel=0.05)
    assert float(chunked.times.bubble_s) == pytest.approx(float(plain.times.bubble_s) / 4, rel=1e-6)
    # Measured, it is a receive that waits: communication.
    said = plain.breakdown.details["pipeline_bubble_ns"]
    assert said == pytest.approx(float(plain.times.bubble_s) * 1e9, abs=1)
    exposed = plain.breakdown.iterations[0].parts.exposed_comm_ns
    # The other stages have no vocabulary layer, and wait for it.
    more = float(plain.times.uneven_s)
    assert 0 < more < 0.25 * busy
    assert exposed == pytest.approx(said + (more + float(plain.times.exposed_comm_s)) * 1e9, abs=3)


def test_stages_are_uneven_by_what_their_ends_take() -> None:
    # Two stages, m micro-batches: the mean one computes half of the ends' difference less in each.
    times = predicted("gpt-2-medium", gpus=2, pipeline_parallel=2, micro_batch=4, global_batch=32).times
    one = predicted("gpt-2-medium", gpus=2, pipeline_parallel=2, micro_batch=4, global_batch=4).times
    assert float(times.uneven_s) == pytest.approx(8 * float(one.uneven_s))
    # The stage that has them waits for the other one's layers, which lacks them: bubble = stage - 2 uneven.
    stage = float(one.compute_s + one.host_s)
    assert float(one.bubble_s) == pytest.approx(stage - 2 * float(one.uneven_s), rel=1e-3)
    assert float(predicted("gpt-2-medium", gpus=2, micro_batch=4, global_batch=8).times.uneven_s) == 0


def test_interval_holds_the_prediction_and_grows_outside_what_was_calibrated() -> None:
    inside = predicted("mpt-7b", "selene", gpus=8, data_parallel="zero3", stack="fsdp-flash", micro_batch=4)
    outside = predicted("mpt-7b", "selene", gpus=2048, data_parallel="zero3", stack="fsdp-flash", micro_batch=4)
    for result in (inside, outside):
        interval = result.breakdown.interval
        assert interval is not None
        assert interval.low_ns < seconds(result) * 1e9 < interval.high_ns
    widths = [math.log(r.breakdown.interval.high_ns / r.breakdown.interval.low_ns) for r in (inside, outside)]  # type: ignore[union-attr]
    assert widths[1] > widths[0]
    assert "extrapolated" in {w.code for w in outside.breakdown.diagnostics}
    assert "extrapolated" not in {w.code for w in inside.breakdown.diagnostics}


def test_the_largest_micro_batch_fits_and_the_next_does_not() -> None:
    setup = made(
        "gpt-2-large", "thetagpu-40", gpus=8, data_parallel="zero1", recompute="full", stack="megatron-lm-2021"
    )
    most = largest_micro_batch(setup)
    assert most is not None
    for size, fits in ((most, True), (most + 1, False)):
        result = predicted(
            "gpt-2-large",
            "thetagpu-40",
            gpus=8,
            data_parallel="zero1",
            recompute="full",
            micro_batch=size,
            stack="megatron-lm-2021",
        )
        assert result.fits is fits


def test_activations_follow_the_published_formula() -> None:
    # arXiv:2205.05198, equations 2 and 4: GPT-22B, tensor parallel 8, micro-batch 4.
    s, b, h, a, t, layers = 2048, 4, 6144, 64, 8, 48
    from wirecost.costmodel.shape import shape_of
    from wirecost.spec import Workload

    workload = Workload(name="w", layers=layers, hidden=h, heads=a, vocab_size=51200, sequence_length=s)
    from wirecost.costmodel.memory import layer_activation_bytes

    setup = made(
        "gpt-18.4b", "selene", gpus=8, tensor_parallel=t, micro_batch=b, global_batch=b, stack="megatron-lm-2021"
    )
    machine = predict(setup).machine
    layout = layout_of(setup)
    plain = float(layer_activation_bytes(s, None, shape_of(workload), layout, machine))
    assert plain == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), rel=1e-9)
    layout.sequence_parallel, layout.recompute = 1.0, 1.0
    assert float(layer_activation_bytes(s, None, shape_of(workload), layout, machine)) == pytest.approx(
        s * b * h * 34 / t, rel=1e-9
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpus": 12}, ["gpus", "8 or 16"]),
        ({"gpus": 64, "tensor_parallel": 3}, ["tensor"]),
        ({"gpus": 64, "tensor_parallel": 64}, ["tensor_parallel", "32 heads"]),
        ({"gpus": 16, "micro_batch": 3, "global_batch": 64}, ["global_batch", "48 or 96"]),
        ({"gpus": 16, "expert_parallel": 2}, ["expert_parallel", "mixture_of_experts"]),
        ({"gpus": 64, "pipeline_parallel": 64}, ["64", "layers"]),
        ({"gpus": 16, "virtual_stages": 2}, ["virtual_stages", "pipeline_parallel"]),
        ({"gpus": 8, "micro_batch": 0}, ["micro_batch"]),
        ({"gpus": 0}, ["gpus", "at least 1"]),
        ({"gpus": 8, "global_batch": 0}, ["global_batch", "at least 8"]),
        ({"cluster": "selene", "matrix_precision": "fp8", "gpus": 8}, ["precision", "fp8", "bf16"]),
        ({"gpus": 8, "stack": "megatron-cor"}, ["did you mean 'megatron-core'"]),
        ({"cluster": "dgx-h10"}, ["did you mean"]),
    ],
)
def test_what_cannot_be_is_refused_with_key_and_hint(options: dict, words: list[str]) -> None:
    with pytest.raises(SpecError) as refused:
        predicted(**options)
    for word in words:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


def test_zero_bandwidth_is_refused() -> None:
    with pytest.raises(SpecError, match="bandwidth"):
        predicted(gpus=16, bandwidth="0 Gb/s")


def test_fp8_is_faster_but_not_twice() -> None:
    plain = predicted("llama-3-70b", gpus=64, tensor_parallel=8, recompute="full", stack="megatron-core")
    low = predicted(
        "llama-3-70b", gpus=64, tensor_parallel=8, recompute="full", stack="megatron-core", matrix_precision="fp8"
    )
    assert 1.1 < seconds(plain) / seconds(low) < 2


def test_experts_cost_what_their_tokens_take() -> None:
    dense = predicted("llama-2-7b", gpus=8, data_parallel="zero3", stack="generic", micro_batch=1)
    sparse = predicted(
        "mixtral-8x7b", gpus=8, data_parallel="zero3", expert_parallel=8, stack="generic", micro_batch=1
    )
    assert float(sparse.times.context_expert_s) > 0
    # 12.9 of 46.7 billion parameters work on a token: more than the 6.7 of the dense one, far from 46.7.
    assert 1.3 < seconds(sparse) / seconds(dense) < 4.5


def test_plans_say_how_gradients_travel() -> None:
    """Fewer bytes, later buckets, no overlap, and stages instead of tensor ranks beside each other."""

    def comm(gpus: int = 16, **plan: object) -> float:
        return float(predicted("gpt-1.3b", gpus=gpus, stack="generic", **plan).times.gradient_s)

    plain = comm(data_parallel="all_reduce")
    assert comm(data_parallel="ddp", overlap=False) == plain
    assert comm(data_parallel="ddp") < plain
    assert comm(data_parallel="ddp", bucket_bytes=1 << 40) > comm(data_parallel="ddp")
    formats = ("bf16", "int8", "powersgd")
    inside = [comm(gpus=8, data_parallel="all_reduce", gradient_traffic=g) for g in formats]
    assert inside == sorted(inside, reverse=True)
    between = [comm(data_parallel="all_reduce", gradient_traffic=g) for g in formats]
    assert between[0] == plain
    # An all-to-all leaves the node from every GPU, where a ring does from one.
    assert between[2] < between[0] < between[1]
    codes = {w.code for w in predicted(gpus=16, gradient_traffic="int8").breakdown.diagnostics}
    assert "compression_estimated" in codes
    zero3 = {"data_parallel": "zero3", "gpus": 16, "stack": "generic"}
    assert seconds(predicted(**zero3, overlap=False)) > seconds(predicted(**zero3))


def test_tensor_ranks_across_nodes_cost_more_than_stages_across_nodes() -> None:
    degrees = {"gpus": 16, "tensor_parallel": 4, "pipeline_parallel": 4, "global_batch": 16}
    usual = predicted(**degrees)
    reverse = predicted(**degrees, rank_order="pp-dp-cp-tp")
    assert float(reverse.times.tensor_s) > 2 * float(usual.times.tensor_s)
    assert float(reverse.times.pipeline_s) < float(usual.times.pipeline_s)
