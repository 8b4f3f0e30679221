"""Values of keys that a configuration leaves out, where they aren't what the rest of the configuration implies."""

from __future__ import annotations

from typing import Any

_LATENT = {"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3}
_OF_TWO = {"num_key_value_heads": 2, "head_dim": 128}

_CHOSEN_EXPERTS = {
    "axk1": 8,
    "cohere2_moe": 2,
    "deepseek_v3": 8,
    "exaone_moe": 8,
    "flex_olmo": 5,
    "flint": 6,
    "glm4_moe": 8,
    "glm4_moe_lite": 4,
    "granitemoe": 2,
    "granitemoe_swa": 2,
    "granitemoeshared": 2,
    "hy_v3": 8,
    "kolibri1": 6,
    "mellum": 8,
    "minimax_m2": 8,
    "mistral4": 4,
    "mixtral": 2,
    "olmoe": 8,
    "phimoe": 2,
    "qwen2_moe": 4,
    "qwen3_moe": 8,
    "sarvam_mla": 8,
    "sarvam_moe": 6,
    "solar_open": 8,
}

_OF_KEYS: dict[str, dict[str, Any]] = {
    "aria_text": {"moe_num_experts": 8, "moe_topk": 2, "moe_num_shared_experts": 2},
    "axk1": {"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "bitnet": {"num_key_value_heads": 5},
    "cohere2_moe": {"head_dim": 128, "sliding_window": 4096},
    "cwm": {"num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192},
    "deepseek_v2": {**_LATENT, "n_shared_experts": 2, "first_k_dense_replace": 0},
    "deepseek_v3": _LATENT,
    "dots1": {"num_key_value_heads": 32},
    "electra": {"embedding_size": 128},
    "ernie4_5": _OF_TWO,
    "ernie4_5_moe": {"num_key_value_heads": 4, "moe_num_shared_experts": 2, "moe_layer_start_index": 1},
    "exaone": {"num_key_value_heads": 8},
    "exaone4": {"num_key_value_heads": 32},
    "exaone_moe": {"num_key_value_heads": 32, "num_shared_experts": 1, "first_k_dense_replace": 1},
    "flint": {"num_key_value_heads": 4, "head_dim": 128, "sliding_window": 513},
    "gemma": {"num_key_value_heads": 16},
    "gemma2": {"num_key_value_heads": 4},
    "gemma3_text": {"num_key_value_heads": 4},
    "glm": _OF_TWO,
    "glm4": {**_OF_TWO, "attention_bias": True},
    "glm4_moe": {"num_key_value_heads": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "glm4_moe_lite": {"q_lora_rank": 768, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64},
    "granite_swa": {"num_key_value_heads": 4, "tie_word_embeddings": True, "sliding_window": 128},
    "granitemoe_swa": {"sliding_window": 128},
    "helium": {"num_key_value_heads": 20, "head_dim": 128},
    "hy_v3": {"num_key_value_heads": 8, "head_dim": 128, "num_shared_experts": 1, "first_k_dense_replace": 1},
    "internlm3": _OF_TWO,
    "iquestcoder": {"num_key_value_heads": 8, "head_dim": 128},
    "kolibri1": {"num_key_value_heads": 4, "head_dim": 128, "sliding_window": 513},
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128},
    "mellum": {"num_key_value_heads": 4, "head_dim": 128},
    "minicpm3": {"q_lora_rank": 768},
    "ministral": {"num_key_value_heads": 8},
    "ministral3": {"num_key_value_heads": 8, "head_dim": 128},
    "minimax_m2": {"num_key_value_heads": 8, "head_dim": 128},
    "mistral": {"num_key_value_heads": 8},
    "mistral4": {"num_key_value_heads": 32, "q_lora_rank": 1024, "n_shared_experts": 1},
    "mixtral": {"num_key_value_heads": 8},
    "phimoe": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen2_moe": {"num_key_value_heads": 16},
    "qwen3": {"num_key_value_heads": 32},
    "qwen3_moe": {"num_key_value_heads": 4},
    "sarvam_mla": {"n_shared_experts": 1, "first_k_dense_replace": 1},
    "sarvam_moe": {"num_key_value_heads": 4, "head_dim": 64, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "seed_oss": {"num_key_value_heads": 8, "head_dim": 128},
    "smollm3": {"num_key_value_heads": 4},
    "solar_open": {"num_key_value_heads": 8, "head_dim": 128, "n_shared_experts": 1},
    "stablelm": {"num_key_value_heads": 32},
    "starcoder2": {"num_key_value_heads": 2},
    "vaultgemma": {"num_key_value_heads": 4, "sliding_window": 4096},
    "youtu": {"q_lora_rank": 1536},
}

DEFAULTS: dict[str, dict[str, Any]] = _OF_KEYS | {
    kind: {**_OF_KEYS.get(kind, {}), "num_experts_per_tok": number} for kind, number in _CHOSEN_EXPERTS.items()
}
"""Values by model type, as in the configuration classes of `transformers`. They are for keys that are left out. A
key whose value is null keeps null, with which the number of heads for keys and values is that of the queries."""
