"""Imports workloads from a Hugging Face `config.json`.

The file is read as data only. A configuration that a workload can't describe is an error. Keys and defaults are
those of the `transformers` configuration class of each model type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wirecost.errors import WirecostError, one_of
from wirecost.reading import read_bytes

MAX_BYTES = 1 << 20
LARGEST = 10**9
"""Largest accepted dimension of a model."""


class Config:
    """The values of a configuration. Its methods check a value and return it.

    Raises:
        ValueError: if a value is missing or invalid. The message is one line and names the key.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    def whole(self, key: str, *others: str, default: int | None = None) -> int:
        """Returns the positive integer under `key` or one of its older names. null counts as missing."""
        present_key = next((k for k in (key, *others) if self.data.get(k) is not None), None)
        if present_key is None:
            if default is None:
                raise ValueError(f"{key}: is missing")
            return default
        value = self.data[present_key]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST:
            raise ValueError(f"{present_key}: should be a whole number from 1 to {LARGEST}, not {_shown(value)}")
        return value

    def count(self, key: str) -> int:
        """Returns the integer under `key`, which may be 0. A missing value and null are 0."""
        value = self.data.get(key)
        return 0 if type(value) is int and value == 0 else self.whole(key, default=0)

    def number(self, key: str, *, default: float) -> float:
        """Returns the number under `key`, which isn't negative. null counts as missing."""
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
            raise ValueError(f"{key}: should be a number from 0 to {LARGEST}, not {_shown(value)}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Returns the boolean under `key`. null counts as missing."""
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{key}: should be true or false, not {_shown(value)}")
        return value

    def only(self, key: str, *allowed: Any) -> Any:
        """Returns the value under `key`, which must be one of `allowed`. A missing value is the first of them."""
        value = self.data.get(key)
        if value is None:
            return allowed[0]
        # 1 == True, but they are different settings.
        if not any(type(value) is type(a) and value == a for a in allowed):
            raise ValueError(
                f"{key}: {_shown(value)} can't be described; only {' or '.join(map(_shown, allowed))}"
            )
        return value


def _gpt2(c: Config) -> dict[str, Any]:
    c.only("activation_function", "gelu_new", "gelu", "gelu_fast", "gelu_pytorch_tanh")
    return {
        "layers": c.whole("n_layer", "num_hidden_layers"),
        "hidden": c.whole("n_embd", "hidden_size"),
        "heads": c.whole("n_head", "num_attention_heads"),
        "ffn_hidden": c.whole("n_inner", default=0) or None,
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.whole("n_positions", "n_ctx", "max_position_embeddings"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }


def _common(c: Config) -> dict[str, Any]:
    """Returns the dimensions under the names that most model types use."""
    return {
        "layers": c.whole("num_hidden_layers"),
        "hidden": c.whole("hidden_size"),
        "heads": c.whole("num_attention_heads"),
        "ffn_hidden": c.whole("intermediate_size"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.whole("max_position_embeddings"),
    }


def _gpt_neox(c: Config) -> dict[str, Any]:
    c.only("hidden_act", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
    c.only("attention_bias", True)
    return {
        **_common(c),
        "positions": "rotary",
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }


def _llama(c: Config) -> dict[str, Any]:
    c.only("hidden_act", "silu", "swish")
    c.only("attention_bias", False)
    c.only("mlp_bias", False)
    return {
        **_common(c),
        "kv_heads": c.whole("num_key_value_heads", default=0) or None,
        "head_dim": c.whole("head_dim", default=0) or None,
        "activation": "swiglu",
        "norm": "rmsnorm",
        "positions": "rotary",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }


def _mixtral(c: Config) -> dict[str, Any]:
    experts = {"experts": c.whole("num_local_experts"), "top_k": c.whole("num_experts_per_tok")}
    return {**_llama(c), "mixture_of_experts": {**experts, "aux_loss": _router_loss(c)}}


def _router_loss(c: Config) -> float:
    """Returns the coefficient of the balancing loss, which `transformers` adds only with the router's logits."""
    coefficient = c.number("router_aux_loss_coef", default=0.001)
    return coefficient if c.flag("output_router_logits", default=False) else 0.0


def _deepseek(c: Config) -> dict[str, Any]:
    """Returns the dimensions of DeepSeek's mixture of experts with ordinary attention, as of DeepSeek-MoE-16B."""
    third = c.data.get("model_type") == "deepseek_v3"
    scorings = ("sigmoid", "softmax") if third else ("softmax", "sigmoid")
    c.only("moe_layer_freq", 1)
    return {
        **_llama(c),
        "mixture_of_experts": {
            "experts": c.whole("n_routed_experts"),
            "top_k": c.whole("num_experts_per_tok"),
            "expert_ffn_hidden": c.whole("moe_intermediate_size"),
            "shared_experts": c.count("n_shared_experts"),
            "dense_layers": c.count("first_k_dense_replace"),
            "scoring": c.only("scoring_func", *scorings),
            "normalised": c.flag("norm_topk_prob", default=third),
            "scaling": c.number("routed_scaling_factor", default=1.0),
            "aux_loss": c.number("aux_loss_alpha", default=0.0 if third else 0.001),
        },
    }


LATENT_SHARING = 8
"""Number of heads that share keys and values in the grouped attention that predictions take for latent attention.
Its projections are of like size, as in the preset deepseek-v2."""


def _deepseek_v2(c: Config) -> dict[str, Any]:
    """Returns the dimensions of DeepSeek-V2 and V3, whose experts are in groups and whose attention is latent."""
    dimensions = _deepseek(c)
    methods = ["greedy", "group_limited_greedy", "noaux_tc"]
    if c.data.get("model_type") == "deepseek_v3":
        methods.reverse()
    if c.only("topk_method", *methods) != "greedy":
        groups = {"groups": c.whole("n_group", default=1), "top_k_groups": c.whole("topk_group", default=1)}
        dimensions["mixture_of_experts"] |= groups
    value, heads = c.whole("v_head_dim"), c.whole("num_attention_heads")
    return {
        **dimensions,
        "kv_heads": heads // LATENT_SHARING if heads % LATENT_SHARING == 0 else None,
        "head_dim": value,
        "latent_attention": {
            "kv_rank": c.whole("kv_lora_rank"),
            "q_rank": c.whole("q_lora_rank", default=0) or None,
            "nope_head_dim": c.whole("qk_nope_head_dim"),
            "rope_head_dim": c.whole("qk_rope_head_dim"),
            "value_head_dim": value,
        },
    }


def _qwen3_moe(c: Config) -> dict[str, Any]:
    c.only("decoder_sparse_step", 1)
    c.only("mlp_only_layers", [])
    return {
        **_llama(c),
        "head_dim": c.whole("head_dim", default=128),
        "mixture_of_experts": {
            "experts": c.whole("num_experts", "num_local_experts"),
            "top_k": c.whole("num_experts_per_tok"),
            "expert_ffn_hidden": c.whole("moe_intermediate_size"),
            "normalised": c.flag("norm_topk_prob", default=False),
            "aux_loss": _router_loss(c),
        },
    }


def _bert(c: Config) -> dict[str, Any]:
    c.only("hidden_act", "gelu", "gelu_new")
    c.only("position_embedding_type", "absolute")
    c.only("type_vocab_size", 2)
    c.only("is_decoder", False)
    return {**_common(c), "family": "bert", "tied_embeddings": c.flag("tie_word_embeddings", default=True)}


T5_ACTIVATIONS = {"relu": "relu", "gated-gelu": "geglu", "gated-silu": "swiglu"}


def _t5(c: Config) -> dict[str, Any]:
    c.only("relative_attention_num_buckets", 32)
    layers = c.whole("num_layers")
    return {
        "family": "t5",
        "layers": layers,
        "decoder_layers": c.whole("num_decoder_layers", default=layers),
        "hidden": c.whole("d_model"),
        "heads": c.whole("num_heads"),
        "head_dim": c.whole("d_kv"),
        "ffn_hidden": c.whole("d_ff"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.whole("n_positions", default=512),
        "activation": T5_ACTIVATIONS[c.only("feed_forward_proj", *T5_ACTIVATIONS)],
        "norm": "rmsnorm",
        "positions": "relative",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }


TYPES: dict[str, Callable[[Config], dict[str, Any]]] = {
    "bert": _bert,
    "deepseek": _deepseek,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _llama,  # without the biases of queries, keys and values (0.01 % of the parameters)
    "qwen3": lambda c: {**_llama(c), "head_dim": c.whole("head_dim", default=128)},
    "qwen3_moe": _qwen3_moe,
    "t5": _t5,
}


def imported(value: Any) -> dict[str, Any] | None:
    """Returns the data of a workload from a configuration file, or None if `value` doesn't name one.

    Args:
        value: the path of a `.json` file, or a mapping with that path under `config`. Other keys of the mapping
            override those of the file.

    Raises:
        ValueError: if the file can't be read, or a workload can't describe it. The message is one line.
    """
    changes: dict[str, Any] = {}
    if isinstance(value, Mapping) and "config" in value:
        changes = {key: setting for key, setting in value.items() if key != "config"}
        value = value["config"]
        if not isinstance(value, str):
            raise ValueError(f"config: should be the path of a Hugging Face config.json, not {_shown(value)}")
    elif not isinstance(value, str) or not value.endswith(".json"):
        return None
    path = Path(value)
    data = _read(path)
    kind = data.get("model_type")
    if not isinstance(kind, str):
        raise ValueError(f"{path}: model_type: is missing, so this isn't a Hugging Face model configuration")
    if kind not in TYPES:
        raise ValueError(f"{path}: {one_of('model_type', kind[:60], TYPES)}")
    try:
        dimensions = TYPES[kind](Config(data))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return {"name": _name(path, kind), "source": f"{kind} config.json", **dimensions, **changes}


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        raw = read_bytes(path, most_bytes=MAX_BYTES, what="configuration", pipes=False)
    except WirecostError as error:
        raise ValueError(str(error)) from error
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected keys with values, found {type(data).__name__}")
    return data


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"the key {_shown(key)} appears twice")
        data[key] = value
    return data


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def _name(path: Path, kind: str) -> str:
    """Returns a workload's name from the file's name, or from that of its folder if the file is config.json."""
    base = path.stem if path.stem != "config" else path.absolute().parent.name
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", base).lstrip("-._+")[:60] or kind


def _shown(value: Any) -> str:
    """Returns a value for messages, shortened and in ASCII."""
    return ascii(value)[:60] if not isinstance(value, bool | None) else json.dumps(value)
