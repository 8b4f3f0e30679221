"""The interval of the memory, and what a rank of an uneven pipeline holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wirecost.costmodel.experts import expert_forward_s
from wirecost.costmodel.iteration import iterate_memory, rank_parameters
from wirecost.costmodel.setup import layout_of, setup
from wirecost.prediction.predict import Prediction, predict
from wirecost.spec import Plan, load_spec
from wirecost.spec.presets import names


def predicted(model: str, gpus: int, stack: str = "megatron-core", batch: int = 64, **plan: Any) -> Prediction:
    keys = {"name": "plan", "precision": "bf16", **plan}
    return predict(
        setup(
            load_spec("workload", model), Plan.model_validate(keys), load_spec("cluster", "dgx-h100"),
            stack=load_spec("stack", stack), gpus=gpus, global_batch=batch,
        )
    )  # fmt: skip


@pytest.mark.parametrize("stack", names("stack"))
def test_the_lower_end_is_not_above_the_upper_one(stack: str) -> None:
    for recompute in ("none", "selective", "full"):
        for model, plan in (("llama-3-8b", {}), ("qwen3-235b-a22b", {"expert_parallel": 8})):
            memory = predicted(model, 8, stack, recompute=recompute, data_parallel="zero1", **plan).memory
            assert 0 < float(memory.least) < float(memory.total)


def test_a_job_between_both_ends_may_fit() -> None:
    kinds = {}
    for model, recompute in (("llama-3-8b", "none"), ("llama-3-8b", "full"), ("llama-3-70b", "full")):
        found = predicted(model, 64, data_parallel="zero1", recompute=recompute)
        kinds[found.fit] = {diagnostic.code for diagnostic in found.breakdown.diagnostics}
    assert set(kinds) == {"fits", "may not fit", "does not fit"}
    assert "memory_uncertain" in kinds["may not fit"] and "out_of_memory" in kinds["does not fit"]
    assert not {"memory_uncertain", "out_of_memory"} & kinds["fits"]


def test_products_in_fp8_may_keep_their_inputs_in_one_byte() -> None:
    plain, low = (predicted("llama-3-8b", 8, matrix_precision=kind).memory for kind in (None, "fp8"))
    assert float(low.total) == float(plain.total)
    tokens, layers, hidden, ffn = 8192, 32, 4096, 14336
    # One byte less of both norms' outputs and the MLP's, one more of the attention's output.
    saved = tokens * layers * (2 * hidden + ffn - hidden)
    assert float(plain.least) - float(low.least) == pytest.approx(saved)


def test_the_first_stage_of_llama_3_has_a_layer_less() -> None:
    degrees = {"tensor_parallel": 8, "pipeline_parallel": 16, "data_parallel": "zero1"}
    uneven = predicted("llama-3-405b", 128, **degrees)
    shape, layout = uneven.shape, layout_of(uneven.setup)
    held = rank_parameters(shape, layout)
    # 126 layers and both ends are 8 of each stage; a layer is larger than the embedding.
    # Each tensor-parallel rank has the norms of its 8 layers and the last one.
    norms = 8 * shape.whole + shape.whole_ends
    assert norms == 17 * 16384
    assert held == pytest.approx((8 * shape.layer_parameters - norms) / 8 + norms, rel=1e-4)
    even = replace(shape, layers=128.0)
    more = iterate_memory(even, layout, uneven.machine)
    assert float(more.activations) == pytest.approx(16 / 15 * float(uneven.memory.activations), rel=1e-3)


def test_a_token_is_sent_to_each_node_once_with_node_limited_routing() -> None:
    plan = {"expert_parallel": 64, "data_parallel": "zero1"}
    found = predicted("deepseek-v3", 64, **plan)
    layout = layout_of(found.setup)
    anywhere = replace(found.shape, used_groups=0.0)
    limited, free = (expert_forward_s(4096.0, shape, layout, found.machine) for shape in (found.shape, anywhere))
    assert found.shape.used_groups == 4
    # Four nodes instead of eight experts.
    assert float(limited) == pytest.approx(float(free) / 2, rel=0.1)
