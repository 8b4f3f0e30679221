"""Parameter counts against the published ones, and shapes."""

from __future__ import annotations

import pytest

from wirecost.model.parameters import count, shape_of
from wirecost.spec import Workload
from wirecost.spec.presets import named

PUBLISHED = {
    # parameters as published with the checkpoints or in the papers' tables
    "gpt-2-medium": 354_823_168,
    "gpt-2-large": 774_030_080,
    "bert-large": 336_226_108,  # BertForPreTraining
    "t5-large": 737_668_096,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
    "llama-2-7b": 6_738_415_616,
    "mixtral-8x7b": 46_702_792_704,
    "megatron-1.2b": 1.2e9,
    "megatron-8.3b": 8.3e9,
    "gpt-18.4b": 18.4e9,
    "gpt-76.1b": 76.1e9,
    "gpt-145.6b": 145.6e9,
    "gpt-310.1b": 310.1e9,
    "gpt-529.6b": 529.6e9,
    "gpt-1008b": 1008.0e9,
    "qwen3-30b-a3b": 30.53e9,
    "deepseek-v3": 671e9,
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_counts_match_what_was_published(name: str) -> None:
    tolerance = 0.012 if name.startswith(("megatron", "deepseek")) else 0.005  # printed with two digits
    assert count(Workload.model_validate(named("workload", name))).total == pytest.approx(
        PUBLISHED[name], rel=tolerance
    )


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_shape_holds_the_same_parameters(name: str) -> None:
    workload = Workload.model_validate(named("workload", name))
    assert shape_of(workload).parameters == pytest.approx(count(workload).total, rel=1e-12)


def test_grouped_query_attention_has_fewer_parameters() -> None:
    data = named("workload", "llama-3-8b")
    grouped = count(Workload.model_validate(data)).total
    full = count(Workload.model_validate({**data, "kv_heads": None})).total
    assert full - grouped == 32 * 2 * 4096 * (32 - 8) * 128
