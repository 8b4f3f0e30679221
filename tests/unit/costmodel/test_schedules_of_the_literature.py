"""Zero-bubble schedules, DualPipe and Ulysses, against the tables of their papers."""

from __future__ import annotations

from typing import Any

import pytest

from wirecost.costmodel.inputs import Layout
from wirecost.costmodel.pipeline import PipelineWork, schedule
from wirecost.costmodel.setup import layout_of, setup
from wirecost.errors import SpecError
from wirecost.prediction.predict import Prediction, predict
from wirecost.spec import Plan, load_spec


def predicted(model: str = "llama-3-70b", gpus: int = 64, batch: int = 16, **plan: Any) -> Prediction:
    settings = {"name": "plan", "precision": "bf16", **plan}
    return predict(
        setup(
            load_spec("workload", model), Plan.model_validate(settings), load_spec("cluster", "dgx-h100"),
            stack=load_spec("stack", "megatron-core"), gpus=gpus, micro_batch=1, global_batch=batch,
        )
    )  # fmt: skip


def bubble(forward: float, weights: float, stages: int, **layout: float) -> float:
    """Returns the bubble of stages with one layer each that takes a second in all."""
    one = predicted(tensor_parallel=8, pipeline_parallel=8)
    work = PipelineWork(1.0, float(stages), 0.0, 0.0, 1.0, forward, weights)
    settings = Layout(tensor=1.0, pipeline=float(stages), data=1.0, micro_batch=1.0, accumulation=32.0, **layout)
    return float(schedule(work, one.shape, settings, one.machine).bubble_s)


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
@pytest.mark.parametrize(("forward", "weights"), [(1 / 3, 1 / 3), (0.35, 0.25), (0.4, 0.1)])
def test_bubbles_are_those_of_the_papers(stages: int, forward: float, weights: float) -> None:
    f, w = forward, weights
    b = 1 - f - w
    assert bubble(f, w, stages) == pytest.approx((stages - 1) * (f + b + w))
    assert bubble(f, w, stages, zero_bubble=1.0) == pytest.approx((stages - 1) * (f + b - w))
    assert bubble(f, w, stages, zero_bubble=2.0) == pytest.approx(max(0.0, (stages - 1) * (f + b - 2 * w)))
    # F&B, a forward beside a whole backward, takes as long as both.
    both = f + (b + w)
    assert bubble(f, w, stages, dualpipe=1.0) == pytest.approx((stages / 2 - 1) * (both + (b + w) - 3 * w))


def test_memory_is_that_of_the_papers() -> None:
    plain, h1, h2, dual = (
        predicted(tensor_parallel=8, pipeline_parallel=8, pipeline_schedule=name)
        for name in ("1f1b", "zb-h1", "zb-h2", "dualpipe")
    )
    assert h1.memory.activations == plain.memory.activations
    assert h2.memory.activations == pytest.approx(15 / 8 * plain.memory.activations)
    assert dual.memory.activations == pytest.approx(9 / 8 * plain.memory.activations)
    assert dual.memory.weights == 2 * plain.memory.weights
    assert plain.total_s > h1.total_s > h2.total_s
    assert all(one.breakdown.diagnostics for one in (h1, h2, dual))


def test_dualpipe_hides_the_exchange_of_tokens() -> None:
    plan = {"pipeline_parallel": 8, "expert_parallel": 8, "data_parallel": "zero1"}
    plain = predicted("qwen3-235b-a22b", 256, 1024, **plan)
    dual = predicted("qwen3-235b-a22b", 256, 1024, pipeline_schedule="dualpipe", **plan)
    assert dual.times.context_expert_s < plain.times.context_expert_s


def test_ulysses_sends_queries_keys_and_values_and_the_output() -> None:
    ring, exchange = (
        predicted("llama-3-8b", 8, 1, context_parallel=8, context_communication=kind) for kind in ("p2p", "a2a")
    )
    assert (layout_of(ring.setup).exchanged_context, layout_of(exchange.setup).exchanged_context) == (0.0, 1.0)
    sent_bytes = 2 * (8192 / 8) * (2 * 4096 + 2 * 1024)
    rate_Bps = float(exchange.machine.intra_Bps * exchange.machine.intra.efficiency)
    least_s = 32 * 2 * sent_bytes * 7 / 8 / rate_Bps  # forward and backward of 32 layers, without latency
    assert least_s < float(exchange.times.context_expert_s) < 3 * least_s


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"context_parallel": 64, "context_communication": "a2a"}, "a2a divides the workload's 32 heads over 64"),
        (
            {"pipeline_parallel": 1, "pipeline_schedule": "dualpipe"},
            "dualpipe needs an even pipeline_parallel, not 1",
        ),
    ],
)
def test_what_is_impossible_is_refused(plan: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        predicted("llama-3-8b", **plan)
