"""Further model types of Hugging Face configurations: keys that are left out, that differ or have other names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.further_models import CONFIGURATIONS
from support.published_models import CONFIGURATIONS as EARLIER
from support.small_configurations import LATENT, MIXTURE, SMALL, check_windows
from wirecost.costmodel.shape import shape_of
from wirecost.errors import SpecError
from wirecost.spec import Workload, load_spec
from wirecost.spec.parameters import count

# The models below were counted by transformers 5.24.0 on PyTorch's meta device.
ROUTED = {**MIXTURE, "n_routed_experts": 8}
EXPERTS = {**MIXTURE, "num_experts": 8}
LOCAL = {**MIXTURE, "num_local_experts": 8}


def workload(data: dict[str, Any], folder: Path) -> Workload:
    path = folder / "config.json"
    path.write_text(json.dumps(data))
    return load_spec("workload", str(path))


def parameters(data: dict[str, Any], folder: Path) -> int:
    return count(workload(data, folder)).total


@pytest.mark.parametrize(
    ("data", "counted"),
    [
        ({"model_type": "cwm"}, 1_148_480),
        ({"model_type": "iquestcoder"}, 1_148_480),
        ({"model_type": "ministral3"}, 1_148_480),
        ({"model_type": "granite_swa"}, 136_288),
        ({"model_type": "persimmon"}, 143_232),
        ({"model_type": "bitnet", "hidden_size": 80, "num_attention_heads": 10}, 202_384),
        ({"model_type": "youtu", **LATENT}, 1_123_488),
        ({"model_type": "hy_v3", **EXPERTS}, 1_303_104),
        ({"model_type": "solar_open", **ROUTED}, 1_353_280),
        ({"model_type": "sarvam_moe", **ROUTED}, 647_232),
        ({"model_type": "sarvam_mla", **LATENT, **ROUTED}, 325_280),
        ({"model_type": "glm4_moe_lite", **LATENT, **ROUTED}, 795_296),
        ({"model_type": "axk1", **LATENT, **ROUTED}, 1_290_080),
        ({"model_type": "exaone_moe", **EXPERTS, "num_key_value_heads": 2}, 294_528),
        ({"model_type": "mellum", **LOCAL}, 1_061_440),
        ({"model_type": "flint", **EXPERTS, "shared_expert_intermediate_size": 40}, 989_792),
        ({"model_type": "kolibri1", **LOCAL, "shared_expert_intermediate_size": 40}, 1_092_672),
    ],
)
def test_keys_that_are_left_out_have_the_defaults_of_their_type(
    data: dict[str, Any], counted: int, tmp_path: Path
) -> None:
    assert parameters({**SMALL, **data}, tmp_path) == counted


@pytest.mark.parametrize(
    ("data", "counted"),
    [
        (
            {"model_type": "helium", "attention_bias": True, "mlp_bias": True}
            | {"num_key_value_heads": 8, "head_dim": 8},
            167_232,
        ),
        ({"model_type": "hyperclovax", "use_post_norm": False, "attention_bias": True}, 166_464),
        ({"model_type": "jais2", "attention_bias": False, "mlp_bias": False}, 141_440),
        ({"model_type": "persimmon", "qk_layernorm": False, "tie_word_embeddings": True}, 130_304),
        ({"model_type": "nanochat", "attention_bias": True}, 141_312),
        ({"model_type": "bitnet", "num_key_value_heads": 2, "attention_bias": True}, 142_144),
        ({"model_type": "youtu", **LATENT, "q_lora_rank": None, "attention_bias": True}, 159_248),
        ({"model_type": "sarvam_moe", **ROUTED, "use_qk_norm": False, "attention_bias": True}, 650_816),
        (
            {"model_type": "mellum", **LOCAL, "attention_bias": True}
            | {"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]},
            982_848,
        ),
        (
            {"model_type": "cohere2_moe", "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 2}
            | {"prefix_dense_intermediate_size": 72, "first_k_dense_replace": 1, "attention_bias": True},
            1_642_560,
        ),
        (
            {"model_type": "flint", **EXPERTS, "shared_expert_intermediate_size": 56, "mlp_only_layers": []}
            | {"attention_bias": True},
            1_112_928,
        ),
        (
            {"model_type": "exaone_moe", **EXPERTS, "num_key_value_heads": 2}
            | {"mlp_layer_types": ["dense", "dense", "sparse", "sparse"]},
            243_328,
        ),
    ],
)
def test_biases_norms_and_layers_that_published_models_lack_are_counted(
    data: dict[str, Any], counted: int, tmp_path: Path
) -> None:
    assert parameters({**SMALL, **data}, tmp_path) == counted


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("hy3", {"moe_intermediate_size": None}),
        ("hy3", {"first_k_dense_replace": 0, "mlp_layer_types": ["dense"] + ["sparse"] * 79}),
        ("sarvam-30b", {"num_experts": None, "n_routed_experts": 128, "use_qkv_bias": False}),
        ("phi-2-as-first-published", {"num_local_experts": 1, "num_experts_per_tok": 1}),
        ("phi-2-as-first-published", {"n_inner": 10240, "n_head_kv": 32}),
        (
            "k-exaone-236b",
            {"mlp_layer_types": None, "first_k_dense_replace": None, "first_last_k_dense_replace": 1}
            | {"is_moe_layer": [False] + [True] * 47, "sliding_window_pattern": "LLLG", "topk_method": "noaux_tc"},
        ),
        ("solar-open-100b", {"intermediate_size": None}),
        ("ministral-3-3b", {"rope_parameters": {"rope_type": "yarn", "factor": 16.0}, "sliding_window": None}),
    ],
)
def test_other_names_of_published_files_change_nothing(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    data = CONFIGURATIONS[name]
    assert parameters({**data, **changes}, tmp_path) == parameters(data, tmp_path)


@pytest.mark.parametrize(
    ("name", "window", "windowed", "layers"),
    [
        ("ministral-8b-2410", 32768, 36, 36),
        ("ministral-3-3b", 0, 0, 26),
        ("cwm-32b", 8192, 48, 64),
        ("granite-swa-2b", 128, 18, 24),
        ("vaultgemma-1b", 512, 13, 26),
        ("cohere2-moe", 4096, 30, 40),
        ("mellum-2-12b", 1024, 21, 28),
        ("kolibri-1-78b", 513, 40, 50),
        ("flint-40b", 513, 35, 49),
        ("k-exaone-236b", 128, 36, 48),
    ],
)
def test_windows_are_read_with_the_layers_that_have_them(
    name: str, window: int, windowed: int, layers: int, tmp_path: Path
) -> None:
    data = CONFIGURATIONS[name]
    check_windows(workload({**data, "max_position_embeddings": 65536}, tmp_path), window, windowed, layers)
    if "layer_types" in data and name != "mellum-2-12b":  # whose default has no window
        without = {key: value for key, value in data.items() if key != "layer_types"}
        assert shape_of(workload(without, tmp_path)).window_share == pytest.approx(windowed / layers)


def test_kinds_of_layers_that_the_model_lacks_count_for_nothing(tmp_path: Path) -> None:
    data = CONFIGURATIONS["k-exaone-236b"]
    cut = {"num_hidden_layers": 4, "max_position_embeddings": 65536}
    shape = shape_of(workload({**data, **cut}, tmp_path))
    assert (shape.window, shape.window_share) == (128, pytest.approx(3 / 4))
    listed = {key: data[key][:4] for key in ("layer_types", "mlp_layer_types")}
    assert parameters({**data, **cut}, tmp_path) == parameters({**data, **cut, **listed}, tmp_path)


@pytest.mark.parametrize(
    ("data", "parameters_of_text"),
    [
        ({"model_type": "mistral3", "text_config": CONFIGURATIONS["ministral-3-8b"]}, 8_489_553_920),
        ({"model_type": "aria", "text_config": CONFIGURATIONS["aria-25b"], "vision_config": {}}, 24_869_091_840),
        ({"model_type": "mistral3", "text_config": CONFIGURATIONS["mistral-small-4-119b"]}, 118_972_826_624),
        (
            {
                "model_type": "apertus1p5",
                "text_config": {**EARLIER["apertus-8b"], "model_type": "apertus1p5_text"},
            },
            8_053_338_176,
        ),
        (
            {"model_type": "paddleocr_vl"}
            | {"text_config": {**EARLIER["ernie-4.5-0.3b"], "model_type": "paddleocr_vl_text"}},
            360_748_032,
        ),
    ],
)
def test_text_parts_of_further_types_are_read(
    data: dict[str, Any], parameters_of_text: int, tmp_path: Path
) -> None:
    read = workload(data, tmp_path)
    assert count(read).total == parameters_of_text
    assert f"only the text part of {data['model_type']} is counted" in read.approximations[-1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"model_type": "step3p7", "text_config": {"model_type": "step3p5", "hidden_size": 4096}},
            "model_type 'step3p7' can't be described: its layers with and without a window differ in their heads",
        ),
        ({**SMALL, "model_type": "afmoe"}, "attention whose outputs are gated is not described by the formulas"),
        ({**SMALL, "model_type": "bart"}, "of encoders with a decoder, T5 and its like are described"),
        (
            {**SMALL, "model_type": "helium", "head_dim": 16},
            "head_dim: should be hidden_size / num_attention_heads",
        ),
        ({**CONFIGURATIONS["hy3"], "mlp_layer_types": ["dense"] * 80}, "mlp_layer_types: no layer has experts"),
        ({**CONFIGURATIONS["hy3"], "mlp_layer_types": "dense"}, "mlp_layer_types: should be a list, not 'dense'"),
        ({**CONFIGURATIONS["hy3"], "first_k_dense_replace": 80}, "first_k_dense_replace: no layer has experts"),
        ({**CONFIGURATIONS["hy3"], "qk_norm": False}, "qk_norm: false can't be described; only true"),
        (
            {**CONFIGURATIONS["xverse-13b"], "num_experts": 64, "num_shared_experts": 2},
            "num_experts: 64 isn't what models of model_type 'xverse' have",
        ),
        (
            {**CONFIGURATIONS["jais-13b"], "position_embedding_type": "rotary"},
            "position_embedding_type: 'rotary' can't be described; only 'alibi' or 'learned'",
        ),
        ({**CONFIGURATIONS["kolibri-1-78b"], "attention_bias": True}, "attention_bias: true can't be described"),
        (
            {**CONFIGURATIONS["glm-4.7-flash"], "mlp_layer_types": ["sparse"]},
            "mlp_layer_types: has 1 items, and the model has 47 layers",
        ),
        (
            {**CONFIGURATIONS["mellum-2-12b"], "mlp_layer_types": ["sparse"] * 27 + [None]},
            "mlp_layer_types: should hold 'sparse' or 'dense' for each layer, not null",
        ),
        (
            {**CONFIGURATIONS["k-exaone-236b"], "mlp_layer_types": None, "is_moe_layer": ["False"] * 48},
            "is_moe_layer: should hold true or false for each layer, not 'False'",
        ),
        (
            {**CONFIGURATIONS["cwm-32b"], "layer_types": ["full_attention", "sliding_attention"]},
            "layer_types: has 2 items, and the model has 64 layers",
        ),
        ({**SMALL, "model_type": "a\n\x1b[31mb"}, "unknown model_type 'a\\x0a\\x1b[31mb'"),
    ],
)
def test_refusals_are_one_line_that_names_the_key(data: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refusal:
        workload(data, tmp_path)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
