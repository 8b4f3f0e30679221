"""LoRA, and the second copy of the parameters in each node (hpZ)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wirecost.costmodel.flops import model_flops
from wirecost.costmodel.setup import setup, trained_share
from wirecost.errors import SpecError
from wirecost.prediction.predict import Prediction, predict
from wirecost.spec import Plan, Workload, load_spec

LORA: dict[str, Any] = {"name": "lora", "precision": "bf16", "lora_rank": 16}


def predicted(model: str = "llama-3-8b", gpus: int = 16, **plan: Any) -> Prediction:
    settings = {"name": "plan", "precision": "bf16", "data_parallel": "zero3", **plan}
    one = setup(
        load_spec("workload", model), Plan.model_validate(settings), load_spec("cluster", "selene"),
        stack=load_spec("stack", "fsdp-flash"), gpus=gpus, micro_batch=1, global_batch=gpus,
    )  # fmt: skip
    return predict(one)


@pytest.mark.parametrize(
    ("model", "adapters"),
    # What PEFT's print_trainable_parameters prints for rank 16 on all linears of the layers.
    [
        ("llama-3-8b", 41_943_040),
        ("llama-2-7b", 39_976_960),
        ("mistral-7b", 41_943_040),
        ("qwen2.5-7b", 40_370_176),
    ],
)
def test_adapters_have_as_many_parameters_as_published(model: str, adapters: int) -> None:
    workload = load_spec("workload", model)
    assert isinstance(workload, Workload)
    one = predicted(model, **LORA)
    assert trained_share(workload, LORA["lora_rank"]) * float(one.shape.parameters) == pytest.approx(adapters)


def test_only_adapters_have_gradients_and_optimizer_state() -> None:
    full, lora = predicted(), predicted(**LORA)
    share = trained_share(lora.setup.workload, lora.setup.plan.lora_rank)
    assert lora.memory.gradients == pytest.approx(share * full.memory.gradients)
    assert lora.memory.optimizer == pytest.approx(share * full.memory.optimizer)
    assert lora.memory.weights == full.memory.weights
    assert lora.times.optimizer_s == pytest.approx(share * full.times.optimizer_s)
    assert lora.total_s < full.total_s


def test_backward_without_weight_gradients_does_a_third_less_products() -> None:
    shape = replace(predicted().shape, sequence=1.0)  # hardly any attention
    assert model_flops(shape, batch=1.0, trained=0.0) == pytest.approx(
        2 / 3 * model_flops(shape, batch=1.0), rel=1e-3
    )


def test_hpz_gathers_inside_the_node_in_backward_and_keeps_a_copy_there() -> None:
    whole, hpz = predicted(gpus=64), predicted(gpus=64, sharding_group="hpz")
    extra = hpz.memory.weights - whole.memory.weights
    assert extra == pytest.approx(2 * float(whole.shape.parameters) / 8)
    assert hpz.total_s < whole.total_s
    assert hpz.times.parameter_s == whole.times.parameter_s  # forward gathers from all
    one_node = predicted(gpus=8)
    assert predicted(gpus=8, sharding_group="hpz").total_s == pytest.approx(one_node.total_s)


def test_hpz_without_zero3_is_refused() -> None:
    with pytest.raises(SpecError, match="hpz keeps a second copy of what zero3 shards, not zero1; use"):
        predicted(sharding_group="hpz", data_parallel="zero1")


def test_what_was_never_measured_has_a_wider_interval_and_says_so() -> None:
    def width(one: Prediction) -> float:
        interval = one.breakdown.interval
        assert interval is not None
        return interval.high_ns / interval.low_ns

    plain = predicted()
    hpz: dict[str, Any] = {"sharding_group": "hpz"}
    one = predicted(**hpz)
    assert width(one) > width(plain)
    assert any(d.code == "uncalibrated_plan" and "hpZ" in d.message for d in one.breakdown.diagnostics)
