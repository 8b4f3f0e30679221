"""Keys of Hugging Face configurations that their model type doesn't have, and keys that are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import further_models, published_models
from support.small_configurations import LATENT, MIXTURE, SMALL
from wirecost.errors import SpecError
from wirecost.spec import Workload, load_spec, validate
from wirecost.spec.huggingface import TYPES, imported
from wirecost.spec.parameters import count

CONFIGURATIONS = published_models.CONFIGURATIONS | further_models.CONFIGURATIONS
FIRST = {data["model_type"]: data for data in reversed(CONFIGURATIONS.values())}
"""One published configuration of each model type."""


def parameters(data: dict[str, Any], folder: Path) -> int:
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(data))
    return count(validate(Workload, imported(str(path)), "w")).total


@pytest.mark.parametrize(
    ("kind", "changes", "key"),
    [
        ("qwen3_moe", {"n_shared_experts": 1, "first_k_dense_replace": 0}, "n_shared_experts"),
        ("qwen3_moe", {"first_k_dense_replace": 3}, "first_k_dense_replace"),
        ("qwen3_moe", {"scoring_func": "sigmoid"}, "scoring_func"),
        ("qwen3_moe", {"n_group": 8}, "n_group"),
        ("mixtral", {"num_shared_experts": 2}, "num_shared_experts"),
        ("mixtral", {"shared_expert_intermediate_size": 2048}, "shared_expert_intermediate_size"),
        ("mixtral", {"attention_bias": True}, "attention_bias"),
        ("mixtral", {"moe_layer_freq": 2}, "moe_layer_freq"),
        ("glm4_moe", {"mlp_layer_types": ["dense"] * 46 + ["sparse"] * 46}, "mlp_layer_types"),
        ("llama", {"num_local_experts": 8, "num_experts_per_tok": 2}, "num_local_experts"),
        ("llama", {"n_routed_experts": "64"}, "n_routed_experts"),
        ("llama", {"kv_lora_rank": 512, "q_lora_rank": None}, "kv_lora_rank"),
        ("llama", {"use_qk_norm": True}, "use_qk_norm"),
        ("llama", {"qkv_bias": True}, "qkv_bias"),
        ("llama", {"draft_vocab_size": 32000}, "draft_vocab_size"),
        ("llama", {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers"),
        ("llama", {"norm_type": "layer_norm"}, "norm_type"),
        ("llama", {"n_layers": 3}, "n_layers"),
        ("llama", {"mamba_d_state": 16}, "mamba_d_state"),
        ("llama", {"block_configs": [{"attention": {"n_heads_in_group": 8}}]}, "block_configs"),
        ("mistral", {"layer_types": ["linear_attention", "full_attention"]}, "layer_types"),
        ("phi3", {"mlp_bias": True}, "mlp_bias"),
        ("llama", {"qk_norm": "true"}, "qk_norm"),
        ("llama", {"use_cla": True, "cla_share_factor": 2}, "use_cla"),
        ("gpt_neox", {"use_rmsnorm": True}, "use_rmsnorm"),
        ("gpt2", {"bias": False}, "bias"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
        ("gpt_neox", {"num_key_value_heads": 1}, "num_key_value_heads"),
        ("opt", {"head_dim": 80}, "head_dim"),
        ("mpt", {"attn_config": {"alibi": True, "qk_ln": True}}, "attn_config.qk_ln"),
        ("bert", {"embedding_size": 128}, "embedding_size"),
    ],
)
def test_a_key_that_means_another_model_is_refused_by_name(
    kind: str, changes: dict[str, Any], key: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**FIRST[kind], **changes}))
    with pytest.raises(SpecError) as refusal:
        load_spec("workload", str(path))
    message = str(refusal.value)
    assert message.startswith(f"{path}: {key}: ")
    assert f"isn't what models of model_type '{kind}' have" in message
    assert "\n" not in message


def test_the_refusal_names_the_model_types_that_have_the_keys(tmp_path: Path) -> None:
    data = {**FIRST["qwen3_moe"], "n_shared_experts": 1, "first_k_dense_replace": 3, "scoring_func": "sigmoid"}
    with pytest.raises(
        ValueError, match=r"set a model_type that has it \(deepseek, deepseek_v2, .*glm4_moe"
    ) as refusal:
        parameters(data, tmp_path)
    assert "qwen2_moe" not in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("qwen3_moe", {"n_shared_experts": None, "num_shared_experts": 0, "shared_expert_intermediate_size": 0}),
        ("qwen3_moe", {"first_k_dense_replace": 0, "scoring_func": "softmax", "n_group": 1, "topk_group": 1}),
        ("qwen3_moe", {"use_qk_norm": True, "qkv_bias": False, "num_local_experts": 128}),
        ("qwen3_moe", {"mlp_layer_types": ["sparse"] * 48, "moe_layer_freq": 1, "is_moe": True}),
        ("llama", {"num_local_experts": None, "num_experts": 1, "use_moe": False, "kv_lora_rank": None}),
        (
            "llama",
            {"use_qk_norm": False, "qkv_bias": False, "num_nextn_predict_layers": 0, "norm_type": "rmsnorm"},
        ),
        ("llama", {"attention_dropout": 0.1, "quantization_config": {"bits": 4}, "rope_scaling": {"factor": 8.0}}),
        ("llama", {"layer_types": ["full_attention"] * 32, "decoder_sparse_step": 1, "mlp_only_layers": []}),
        ("llama", {"use_mla": False, "kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 128}),
        ("qwen2", {"attention_bias": True, "qkv_bias": True, "max_window_layers": 28}),
        ("deepseek_v3", {"qk_head_dim": 192, "ep_size": 1, "aux_loss_alpha": 0.001, "pretraining_tp": 1}),
        ("llama4_text", {"use_qk_norm": True}),
        ("gpt2", {"n_ctx": 1024, "bias": True, "summary_use_proj": True, "add_cross_attention": False}),
        ("bert", {"head_dim": 64, "num_key_value_heads": 12, "use_bias": True, "embedding_size": 768}),
        ("gptj", {"intermediate_size": 37, "type_vocab_size": 16, "hidden_act": "gelu"}),
        ("opt", {"n_embd": 768, "n_heads": 12, "n_layer": 12}),
    ],
)
def test_a_key_that_says_nothing_new_changes_nothing(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    data = FIRST[kind]
    assert parameters({**data, **changes}, tmp_path) == parameters(data, tmp_path)


@pytest.mark.parametrize("kind", TYPES)
def test_every_model_type_is_refused_with_a_mixture_or_ranks_that_it_has_not(kind: str, tmp_path: Path) -> None:
    for key in ("loop_num_passes", "hidden_size_per_layer_input", "num_kv_shared_layers", "mamba_d_state"):
        with pytest.raises(ValueError, match=f"{key}: 3 isn't what models of model_type '{kind}' have"):
            parameters({**FIRST[kind], key: 3}, tmp_path)


# The models below were counted by transformers 5.24.0 on PyTorch's meta device.


@pytest.mark.parametrize(
    ("data", "counted"),
    [
        ({"model_type": "mistral", "num_attention_heads": 16}, 149_056),
        ({"model_type": "glm"}, 761_408),
        ({"model_type": "glm4"}, 761_920),
        ({"model_type": "smollm3"}, 136_256),
        ({"model_type": "starcoder2"}, 105_344),
        ({"model_type": "seed_oss"}, 1_160_768),
        ({"model_type": "electra"}, 164_161),
        ({"model_type": "qwen3_moe", **MIXTURE, "num_experts": 8}, 323_200),
        ({"model_type": "deepseek_v2", **LATENT, **MIXTURE, "n_routed_experts": 8}, 1_371_808),
    ],
)
def test_keys_that_are_left_out_have_the_defaults_of_their_type(
    data: dict[str, Any], counted: int, tmp_path: Path
) -> None:
    assert parameters({**SMALL, **data}, tmp_path) == counted


@pytest.mark.parametrize(
    ("data", "counted"),
    [
        ({"model_type": "seed_oss", "mlp_bias": True, "attention_out_bias": True}, 1_162_048),
        (
            {"model_type": "deepseek_v3", **LATENT, **MIXTURE, "n_routed_experts": 8, "q_lora_rank": 20}
            | {"attention_bias": True},
            211_632,
        ),
        (
            {"model_type": "deepseek_v2", **LATENT, **MIXTURE, "n_routed_experts": 8, "q_lora_rank": None}
            | {"attention_bias": True},
            407_568,
        ),
        ({"model_type": "minicpm3", **LATENT, "attention_bias": True}, 632_336),
        (
            {"model_type": "modernbert", "norm_bias": True, "attention_bias": True, "mlp_bias": True}
            | {"classifier_bias": True, "decoder_bias": False},
            159_552,
        ),
        ({"model_type": "apertus", "attention_bias": True, "hidden_act": "xielu"}, 141_960),
        ({"model_type": "deberta-v2", "embedding_size": 32}, 130_344),
        (
            {"model_type": "opt", "ffn_dim": 96, "_remove_final_layer_norm": True}
            | {"layer_norm_elementwise_affine": False},
            133_376,
        ),
    ],
)
def test_biases_norms_and_widths_that_published_models_lack_are_counted(
    data: dict[str, Any], counted: int, tmp_path: Path
) -> None:
    assert parameters({**SMALL, **data}, tmp_path) == counted


def test_minicpm_may_have_experts(tmp_path: Path) -> None:
    mixture = {"num_experts": 8, "num_experts_per_tok": 2}
    dense = parameters({**SMALL, "model_type": "minicpm"}, tmp_path)
    experts = 4 * (7 * 3 * 64 * 96 + 8 * 64)  # seven more MLPs and the router in each layer
    assert parameters({**SMALL, "model_type": "minicpm", **mixture}, tmp_path) == dense + experts


def test_a_long_list_of_what_a_quantizer_left_out_is_read(tmp_path: Path) -> None:
    ignored = {"quantization_config": {"ignore": [f"model.layers.{n}.mlp.gate" for n in range(60_000)]}}
    data = FIRST["llama"]
    assert len(json.dumps(ignored)) > 1 << 20
    assert parameters({**data, **ignored}, tmp_path) == parameters(data, tmp_path)


def test_a_missing_length_of_sequences_is_asked_for_and_taken_from_what_is_given(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    llama = {key: value for key, value in FIRST["llama"].items() if key != "max_position_embeddings"}
    path.write_text(json.dumps(llama))
    with pytest.raises(SpecError, match=r"length of a sequence isn't known; say it, as in .*--sequence-length"):
        load_spec("workload", str(path))
    assert load_spec("workload", str(path), sequence_length=64).sequence_length == 64
    assert (imported({"config": str(path), "sequence_length": 96}) or {})["sequence_length"] == 96
    with pytest.raises(ValueError, match="length of a sequence isn't known"):
        imported({"config": str(path), "sequence_length": "long"})


def test_positions_that_are_learned_are_not_taken_from_the_length_of_sequences(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    gpt2 = {k: v for k, v in FIRST["gpt2"].items() if k not in ("n_positions", "n_ctx", "max_position_embeddings")}
    path.write_text(json.dumps(gpt2))
    with pytest.raises(SpecError, match="n_positions: is missing"):
        load_spec("workload", str(path), sequence_length=64)


SHARED = {"moe_intermediate_size": 40, "shared_expert_intermediate_size": 40, "num_key_value_heads": 8}


@pytest.mark.parametrize(
    ("data", "top_k"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8}, 2),
        ({"model_type": "qwen2_moe", "num_experts": 8, **SHARED}, 4),
        ({"model_type": "olmoe", "num_experts": 16}, 8),
        ({"model_type": "deepseek_v3", **LATENT, "n_routed_experts": 16, "moe_intermediate_size": 40}, 8),
        ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 3}, 3),
    ],
)
def test_the_number_of_experts_of_a_token_may_be_left_out(
    data: dict[str, Any], top_k: int, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SMALL, **data}))
    moe = load_spec("workload", str(path)).mixture_of_experts
    assert moe is not None
    assert moe.top_k == top_k
