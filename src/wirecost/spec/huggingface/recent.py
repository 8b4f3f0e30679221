"""Decoders of 2025 and later that are like earlier ones, with other keys: Apertus, Bailing, dots, Hunyuan, MiMo,
MiniMax-M2."""

from __future__ import annotations

from wirecost.spec.huggingface.config import Config, Dimensions, extended, head_sizes, with_attention_biases
from wirecost.spec.huggingface.deepseek import deepseek, with_predicted_tokens
from wirecost.spec.huggingface.experts import router_loss
from wirecost.spec.huggingface.llama_like import decoder, llama_dimensions, unbiased
from wirecost.spec.huggingface.qwen import qwen2


def apertus(c: Config) -> Dimensions:
    """Returns the dimensions of Apertus: an MLP of two matrices with xIELU, whose two parameters are trained, and
    normalised queries and keys."""
    c.only("hidden_act", "xielu")
    dimensions = {**llama_dimensions(c), "activation": "gelu"}
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=True)
    size, _, _ = head_sizes(dimensions)
    return extended(dimensions, layer=2 * size + 2, notes=("xIELU is predicted as GELU",))


def bailing(c: Config) -> Dimensions:
    """Returns the dimensions of Bailing's mixtures of experts, Ling and Ring, of the first and second version."""
    c.only("use_bias", False)
    dimensions = unbiased(c)
    moe = {
        "experts": c.whole("num_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn_hidden": c.whole("moe_intermediate_size"),
        "shared_experts": c.count("num_shared_experts"),
        "dense_layers": c.count("first_k_dense_replace"),
        "scoring": c.only("score_function", "softmax", "sigmoid"),
        "normalised": c.flag("norm_topk_prob", default=False),
        "groups": c.whole("n_group", default=1),
        "top_k_groups": c.whole("topk_group", default=1),
    }
    c.only("moe_shared_expert_intermediate_size", moe["expert_ffn_hidden"])
    dimensions["mixture_of_experts"] = moe
    if c.flag("use_qkv_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=False)
    if c.flag("use_qk_norm", default=False):
        dimensions = extended(dimensions, layer=2 * head_sizes(dimensions)[0])
    return with_predicted_tokens(c, dimensions)


def dots1(c: Config) -> Dimensions:
    """Returns the dimensions of dots.llm1: DeepSeek's experts, and queries and keys that are normalised in each
    head."""
    dimensions = deepseek(c)
    groups = {"groups": c.whole("n_group", default=1), "top_k_groups": c.whole("topk_group", default=1)}
    dimensions["mixture_of_experts"] |= groups
    return extended(dimensions, layer=2 * head_sizes(dimensions)[0])


def hunyuan(c: Config) -> Dimensions:
    """Returns the dimensions of a dense Hunyuan, whose queries and keys are normalised in each head."""
    dimensions = decoder(c)
    if c.flag("use_qk_norm", default=True):
        dimensions = extended(dimensions, layer=2 * head_sizes(dimensions)[0])
    return dimensions


def hunyuan_moe(c: Config) -> Dimensions:
    """Returns the dimensions of Hunyuan's mixture of experts, some of whose keys have a value for each layer."""
    c.only("moe_layer_num_skipped", 0)
    width = _of_all_layers(c, "moe_intermediate_size") or c.whole("intermediate_size")
    mixed = c.flag("use_mixed_mlp_moe", default=True)
    mixture = {
        "experts": c.whole("num_experts"),
        "top_k": _of_all_layers(c, "moe_topk"),
        "expert_ffn_hidden": width,
        "shared_experts": _of_all_layers(c, "num_shared_expert", default=1) if mixed else 0,
    }
    return {**hunyuan(c), "mixture_of_experts": mixture}


def _of_all_layers(c: Config, key: str, default: int = 0) -> int:
    """Returns the number under a key that may have a list of one number for each layer; `default` without the key.

    Raises:
        ValueError: if the layers differ.
    """
    if not isinstance(c.get(key), list):
        return default if c.get(key) is None else c.count(key)
    values = c.items(key)
    if not values or any(value != values[0] for value in values):
        raise ValueError(f"{c.where}{key}: its layers differ from each other, which can't be described")
    return Config({key: values[0]}, c.where).count(key)


def mimo(c: Config) -> Dimensions:
    """Returns the dimensions of MiMo: those of Qwen 2, with modules of multi-token prediction."""
    return with_predicted_tokens(c, qwen2(c))


def minimax_m2(c: Config) -> Dimensions:
    """Returns the dimensions of MiniMax-M2, whose queries and keys are normalised as a whole."""
    dimensions = unbiased(c)
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("num_local_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "scoring": c.only("scoring_func", "sigmoid", "softmax"),
        "aux_loss": router_loss(c),
    }
    if c.count("shared_intermediate_size"):
        raise ValueError(f"{c.where}shared_intermediate_size: should be 0, as in the published models")
    if c.flag("use_qk_norm", default=True):
        c.only("qk_norm_type", "per_layer")
        _, queries, keys = head_sizes(dimensions)
        dimensions = extended(dimensions, layer=queries + keys)
    modules = c.count("num_mtp_modules")
    c.only("mtp_transformer_layers", 1)
    return {**dimensions, "multi_token_prediction": modules} if c.flag("use_mtp", default=False) else dimensions


TYPES = {
    "apertus": apertus,
    "bailing_moe": bailing,
    "bailing_moe_v2": bailing,
    "dots1": dots1,
    "hunyuan_v1_dense": hunyuan,
    "hunyuan_v1_moe": hunyuan_moe,
    "mimo": mimo,
    "minimax_m2": minimax_m2,
}
"""Reader of each model type."""
