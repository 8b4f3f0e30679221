"""Qwen, dense and with a mixture of experts."""

from __future__ import annotations

from wirecost.spec.huggingface.config import (
    Config,
    Dimensions,
    extended,
    head_sizes,
    with_attention_biases,
    with_window,
)
from wirecost.spec.huggingface.experts import router_loss, with_shared
from wirecost.spec.huggingface.llama_like import decoder, llama_dimensions


def qwen2(c: Config) -> Dimensions:
    """Returns the dimensions of Qwen 2 and 2.5, whose queries, keys and values have biases."""
    c.only("hidden_act", "silu", "swish")
    dimensions = with_attention_biases(llama_dimensions(c), output=False)
    return _qwen_window(c, dimensions)


def qwen3(c: Config) -> Dimensions:
    """Returns the dimensions of a dense Qwen 3, whose queries and keys are normalised in each head."""
    dimensions = {**decoder(c), "head_dim": c.whole("head_dim", default=128)}
    return _qwen_window(c, extended(dimensions, layer=2 * dimensions["head_dim"]))


def _qwen_window(c: Config, dimensions: Dimensions) -> Dimensions:
    """Returns dimensions with the window that Qwen's layers from `max_window_layers` on have."""
    if not c.flag("use_sliding_window", default=False):
        return dimensions
    return with_window(c, dimensions, full=min(c.count("max_window_layers"), dimensions["layers"]))


def qwen(c: Config) -> Dimensions:
    """Returns the dimensions of the first Qwen. `intermediate_size` counts both matrices of the gate."""
    c.only("no_bias", True)
    ffn = c.whole("intermediate_size")
    if ffn % 2:
        raise ValueError(f"intermediate_size: {ffn} should be even, because it counts two matrices")
    dimensions = {
        **llama_dimensions(c.changed(max_position_embeddings=c.sequence("max_position_embeddings", "seq_length"))),
        "ffn_hidden": ffn // 2,
        "head_dim": c.optional("kv_channels"),
    }
    return with_attention_biases(dimensions, output=False)


def qwen2_moe(c: Config) -> Dimensions:
    """Returns the dimensions of the mixtures of experts of Qwen 1.5 and 2, with one gated shared expert."""
    dimensions = llama_dimensions(c)
    if c.flag("qkv_bias", default=True):
        dimensions = with_attention_biases(dimensions, output=False)
    layers = dimensions["layers"]
    sparse = _sparse_layers(c, layers)
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("num_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn_hidden": c.whole("moe_intermediate_size"),
        "normalised": c.flag("norm_topk_prob", default=False),
        "aux_loss": router_loss(c),
        **({} if sparse == layers else {"moe_layers": sparse}),
    }
    dimensions = with_shared(dimensions, c.whole("shared_expert_intermediate_size"))
    return extended(dimensions, model=sparse * dimensions["hidden"])  # the gate of the shared expert


def qwen3_moe(c: Config) -> Dimensions:
    """Returns the dimensions of the mixture of experts of Qwen 3, whose queries and keys are normalised in each
    head."""
    dimensions = decoder(c)
    layers = dimensions["layers"]
    sparse = _sparse_layers(c, layers)
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("num_experts", "num_local_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn_hidden": c.whole("moe_intermediate_size"),
        "normalised": c.flag("norm_topk_prob", default=False),
        "aux_loss": router_loss(c),
        **({} if sparse == layers else {"moe_layers": sparse}),
    }
    return extended(dimensions, layer=2 * head_sizes(dimensions)[0])


def _sparse_layers(c: Config, layers: int) -> int:
    """Returns the number of layers with experts, by `decoder_sparse_step` and `mlp_only_layers`."""
    step = c.whole("decoder_sparse_step", default=1)
    dense = {layer for layer in c.items("mlp_only_layers") if type(layer) is int}
    sparse = sum((layer + 1) % step == 0 and layer not in dense for layer in range(min(layers, 10_000)))
    if not sparse:
        raise ValueError("decoder_sparse_step: no layer has experts")
    return sparse


TYPES = {"qwen": qwen, "qwen2": qwen2, "qwen2_moe": qwen2_moe, "qwen3": qwen3, "qwen3_moe": qwen3_moe}
"""Reader of each model type."""
