"""Values of keys that a configuration leaves out, where they aren't what the rest of the configuration implies."""

from __future__ import annotations

from typing import Any

_LATENT = {"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3}
_OF_TWO = {"num_key_value_heads": 2, "head_dim": 128}

DEFAULTS: dict[str, dict[str, Any]] = {
    "deepseek_v2": {**_LATENT, "n_shared_experts": 2, "first_k_dense_replace": 0},
    "deepseek_v3": _LATENT,
    "dots1": {"num_key_value_heads": 32},
    "electra": {"embedding_size": 128},
    "ernie4_5": _OF_TWO,
    "ernie4_5_moe": {"num_key_value_heads": 4, "moe_num_shared_experts": 2, "moe_layer_start_index": 1},
    "exaone": {"num_key_value_heads": 8},
    "exaone4": {"num_key_value_heads": 32},
    "gemma": {"num_key_value_heads": 16},
    "gemma2": {"num_key_value_heads": 4},
    "gemma3_text": {"num_key_value_heads": 4},
    "glm": _OF_TWO,
    "glm4": {**_OF_TWO, "attention_bias": True},
    "glm4_moe": {"num_key_value_heads": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64},
    "internlm3": _OF_TWO,
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128},
    "minicpm3": {"q_lora_rank": 768},
    "minimax_m2": {"num_key_value_heads": 8, "head_dim": 128},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "phimoe": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen2_moe": {"num_key_value_heads": 16},
    "qwen3": {"num_key_value_heads": 32},
    "qwen3_moe": {"num_key_value_heads": 4},
    "seed_oss": {"num_key_value_heads": 8, "head_dim": 128},
    "smollm3": {"num_key_value_heads": 4},
    "stablelm": {"num_key_value_heads": 32},
    "starcoder2": {"num_key_value_heads": 2},
}
"""Values by model type, as in the configuration classes of `transformers`. They are for keys that are left out. A
key whose value is null keeps null, with which the number of heads for keys and values is that of the queries."""
