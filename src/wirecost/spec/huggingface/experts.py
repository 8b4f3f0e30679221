"""Decoders with a mixture of experts."""

from __future__ import annotations

from typing import Any

from wirecost.spec.huggingface.config import (
    Config,
    Dimensions,
    extended,
    head_sizes,
    with_attention_biases,
    with_norms,
    with_window,
)
from wirecost.spec.huggingface.deepseek import with_predicted_tokens
from wirecost.spec.huggingface.llama_like import MULTIPLIERS, decoder, ernie, llama_dimensions, mistral


def router_loss(c: Config) -> float:
    """Returns the coefficient of the balancing loss, which `transformers` adds only with the router's logits."""
    coefficient = c.number("router_aux_loss_coef", default=0.001)
    return coefficient if c.flag("output_router_logits", default=False) else 0.0


def with_shared(dimensions: Dimensions, width: int) -> Dimensions:
    """Returns dimensions with one shared expert of a width, as several shared experts as wide as the others."""
    moe: dict[str, Any] = dimensions["mixture_of_experts"]
    each = moe.get("expert_ffn_hidden") or dimensions["ffn_hidden"]
    number = max(1, round(width / each))
    dimensions = {**dimensions, "mixture_of_experts": {**moe, "shared_experts": number}}
    if number * each == width:
        return dimensions
    sparse = moe.get("moe_layers") or dimensions["layers"]
    difference = 3 * dimensions["hidden"] * (width - number * each) * sparse
    note = f"the shared expert is {width} wide, and predictions take it {number * each} wide"
    return extended(dimensions, model=difference, notes=(note,))


def mixtral(c: Config) -> Dimensions:
    """Returns the dimensions of Mixtral."""
    experts = {"experts": c.whole("num_local_experts"), "top_k": c.whole("num_experts_per_tok")}
    return {**mistral(c), "mixture_of_experts": {**experts, "aux_loss": router_loss(c)}}


def olmoe(c: Config) -> Dimensions:
    """Returns the dimensions of OLMoE, whose queries and keys are normalised as a whole."""
    dimensions = decoder(c)
    _, queries, keys = head_sizes(dimensions)
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("num_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "normalised": c.flag("norm_topk_prob", default=False),
        "aux_loss": router_loss(c),
    }
    return extended(dimensions, layer=queries + keys)


def phimoe(c: Config) -> Dimensions:
    """Returns the dimensions of Phi-3.5-MoE, with LayerNorm and biases of attention and head."""
    dimensions = {**decoder(c), "norm": "layernorm"}
    experts = {"experts": c.whole("num_local_experts"), "top_k": c.whole("num_experts_per_tok")}
    dimensions["mixture_of_experts"] = {**experts, "aux_loss": router_loss(c)}
    if c.flag("lm_head_bias", default=False):
        dimensions = extended(dimensions, model=dimensions["vocab_size"])
    return with_window(c, dimensions, full=0)


def gpt_oss(c: Config) -> Dimensions:
    """Returns the dimensions of GPT-OSS: biases everywhere, a sink in each head, and a window in every other
    layer."""
    dimensions = llama_dimensions(c)
    hidden, ffn = dimensions["hidden"], dimensions["ffn_hidden"]
    experts = c.whole("num_local_experts", "num_experts")
    dimensions["mixture_of_experts"] = {
        "experts": experts,
        "top_k": c.whole("num_experts_per_tok", "experts_per_token"),
        "aux_loss": router_loss(c),
    }
    if c.flag("attention_bias", default=True):
        dimensions = with_attention_biases(dimensions, output=True)
    dimensions = extended(
        dimensions,
        layer=dimensions["heads"] + experts * (2 * ffn + hidden + 1),
        notes=("attention sinks take no time in predictions",),
    )
    return with_window(c, dimensions, full=dimensions["layers"] // 2)


def granitemoe(c: Config) -> Dimensions:
    """Returns the dimensions of Granite's mixtures of experts, with and without a shared expert."""
    dimensions = decoder(c)
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("num_local_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "aux_loss": router_loss(c),
    }
    if shared := c.count("shared_intermediate_size"):
        dimensions = with_shared(dimensions, shared)
    return extended(dimensions, notes=(MULTIPLIERS,))


def dbrx(c: Config) -> Dimensions:
    """Returns the dimensions of DBRX, whose LayerNorms have no biases."""
    attention, ffn = c.part("attn_config"), c.part("ffn_config")
    dimensions: Dimensions = {
        "layers": c.whole("n_layers"),
        "hidden": c.whole("d_model"),
        "heads": c.whole("n_heads"),
        "kv_heads": attention.optional("kv_n_heads"),
        "ffn_hidden": ffn.whole("ffn_hidden_size"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.sequence("max_seq_len"),
        "activation": "swiglu",
        "positions": "rotary",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
        "mixture_of_experts": {
            "experts": ffn.whole("moe_num_experts"),
            "top_k": ffn.whole("moe_top_k"),
            "aux_loss": ffn.number("moe_loss_weight", default=0.01),
        },
    }
    return with_norms(dimensions, layer=2)


def grok(c: Config) -> Dimensions:
    """Returns the dimensions of Grok-1: gated experts with GELU, four norms in each layer, tied embeddings."""
    dimensions = {
        **llama_dimensions(c),
        "activation": "geglu",
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
        "mixture_of_experts": {
            "experts": c.whole("num_experts"),
            "top_k": c.whole("num_experts_per_tok", "num_selected_experts"),
            "aux_loss": router_loss(c),
        },
    }
    return with_norms(dimensions, layer=4)


def llama4(c: Config) -> Dimensions:
    """Returns the dimensions of the text part of Llama 4, with one shared expert in each layer with experts."""
    dimensions = decoder(c)
    layers, step = dimensions["layers"], c.whole("interleave_moe_layer_step", default=1)
    listed = c.items("moe_layers")
    sparse = len(listed) if listed else sum((layer + 1) % step == 0 for layer in range(min(layers, 10_000)))
    if not sparse:
        raise ValueError("interleave_moe_layer_step: no layer has experts")
    dimensions |= {
        "ffn_hidden": c.whole("intermediate_size_mlp"),
        "mixture_of_experts": {
            "experts": c.whole("num_local_experts"),
            "top_k": c.whole("num_experts_per_tok", default=1),
            "expert_ffn_hidden": c.whole("intermediate_size"),
            "shared_experts": 1,
            "scoring": "sigmoid",
            "normalised": False,
            "aux_loss": router_loss(c),
            **({} if sparse == layers else {"moe_layers": sparse}),
        },
    }
    # Layers with rotary positions attend inside chunks, every fourth layer to everything.
    return with_window(c, dimensions, full=layers // 4, key="attention_chunk_size")


def ernie_moe(c: Config) -> Dimensions:
    """Returns the dimensions of ERNIE 4.5's mixture of experts."""
    dimensions = ernie(c)
    layers, start = dimensions["layers"], c.count("moe_layer_start_index")
    last = c.whole("moe_layer_end_index", default=layers - 1) if c.get("moe_layer_end_index") != -1 else layers - 1
    step = c.whole("moe_layer_interval", default=1)
    sparse = sum((layer + 1) % step == 0 for layer in range(start, min(last + 1, layers, 10_000)))
    if not sparse:
        raise ValueError("moe_layer_start_index: no layer has experts")
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("moe_num_experts"),
        "top_k": c.whole("moe_k"),
        "expert_ffn_hidden": c.whole("moe_intermediate_size"),
        "shared_experts": c.count("moe_num_shared_experts"),
        **({} if sparse == layers else {"moe_layers": sparse}),
    }
    return with_predicted_tokens(c, dimensions)


TYPES = {
    "dbrx": dbrx,
    "ernie4_5_moe": ernie_moe,
    "gpt_oss": gpt_oss,
    "granitemoe": granitemoe,
    "granitemoeshared": granitemoe,
    "grok-1": grok,
    "llama4_text": llama4,
    "mixtral": mixtral,
    "olmoe": olmoe,
    "phimoe": phimoe,
}
"""Reader of each model type."""
