"""Decoders like Llama: RMSNorm or LayerNorm, gated MLPs, rotary positions, grouped-query attention."""

from __future__ import annotations

from wirecost.spec.huggingface.config import (
    Config,
    Dimensions,
    extended,
    head_sizes,
    with_attention_biases,
    with_norms,
    with_window,
)

MULTIPLIERS = "scalar factors of embeddings, residuals and logits take no time in predictions"


def llama_dimensions(c: Config) -> Dimensions:
    """Returns the dimensions of a Llama without biases, whatever its activation function is."""
    return {
        "layers": c.whole("num_hidden_layers"),
        "hidden": c.whole("hidden_size"),
        "heads": c.whole("num_attention_heads"),
        "kv_heads": c.optional("num_key_value_heads"),
        "head_dim": c.optional("head_dim"),
        "ffn_hidden": c.whole("intermediate_size"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.sequence("max_position_embeddings"),
        "activation": "swiglu",
        "norm": "rmsnorm",
        "positions": "rotary",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }


def unbiased(c: Config) -> Dimensions:
    """Returns the dimensions of a model like Llama that never has biases."""
    c.only("hidden_act", "silu", "swish")
    return llama_dimensions(c)


def decoder(c: Config) -> Dimensions:
    """Returns the dimensions of a model like Llama whose attention may have biases, but not its MLP."""
    dimensions = unbiased(c)
    return (
        with_attention_biases(dimensions, output=True) if c.flag("attention_bias", default=False) else dimensions
    )


def llama(c: Config) -> Dimensions:
    """Returns the dimensions of a Llama, also with biases of attention or MLP."""
    dimensions = decoder(c)
    if c.flag("mlp_bias", default=False):
        dimensions = extended(dimensions, layer=2 * dimensions["ffn_hidden"] + dimensions["hidden"])
    return dimensions


def mistral(c: Config) -> Dimensions:
    """Returns the dimensions of a Mistral, whose first version has a sliding window in all layers."""
    return with_window(c, unbiased(c), full=0)


def phi3(c: Config) -> Dimensions:
    """Returns the dimensions of Phi-3 and Phi-4."""
    return with_window(c, unbiased(c), full=0)


def seed_oss(c: Config) -> Dimensions:
    """Returns the dimensions of Seed-OSS, whose attention may have biases with and without those of the output."""
    dimensions = llama(c.changed(attention_bias=False))
    if c.flag("attention_bias", default=True):
        dimensions = with_attention_biases(dimensions, output=False)
    return extended(dimensions, layer=dimensions["hidden"] if c.flag("attention_out_bias", default=False) else 0)


def olmo(c: Config) -> Dimensions:
    """Returns the dimensions of the first OLMo, whose LayerNorms have no parameters."""
    return with_norms(decoder(c), layer=0, final=0)


def olmo2(c: Config) -> Dimensions:
    """Returns the dimensions of OLMo 2 and 3, whose queries and keys are normalised as a whole."""
    dimensions = decoder(c)
    _, queries, keys = head_sizes(dimensions)
    return with_window(c, extended(dimensions, layer=queries + keys), full=dimensions["layers"] // 4)


def stablelm(c: Config) -> Dimensions:
    """Returns the dimensions of StableLM, with LayerNorm."""
    parallel = c.flag("use_parallel_residual", default=False)
    dimensions = {**unbiased(c), "norm": "layernorm", "parallel_block": parallel}
    c.only("head_dim", None, dimensions["hidden"] // dimensions["heads"])
    dimensions = with_norms(dimensions, layer=1 if parallel else 2, biases=True)
    if c.flag("use_qkv_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=False)
    if c.flag("qk_layernorm", default=False):
        _, queries, keys = head_sizes(dimensions)
        dimensions = extended(dimensions, layer=queries + keys)
    return dimensions


def internlm2(c: Config) -> Dimensions:
    """Returns the dimensions of InternLM 2, whose attention may have biases."""
    c.only("hidden_act", "silu", "swish")
    dimensions = llama_dimensions(c)
    return with_attention_biases(dimensions, output=True) if c.flag("bias", default=False) else dimensions


def internlm3(c: Config) -> Dimensions:
    """Returns the dimensions of InternLM 3. `bias` is for the output and the MLP, `qkv_bias` for the rest."""
    dimensions = llama_dimensions(c)
    if c.flag("qkv_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=False)
    if c.flag("bias", default=False):
        dimensions = extended(dimensions, layer=2 * dimensions["ffn_hidden"] + 2 * dimensions["hidden"])
    return dimensions


def baichuan(c: Config) -> Dimensions:
    """Returns the dimensions of Baichuan. The model of 40 layers has ALiBi in place of rotary positions."""
    c.only("hidden_act", "silu", "swish")
    rotary = c.get("max_position_embeddings") is not None
    longest = c.sequence("max_position_embeddings", "model_max_length", default=4096)
    return {
        **llama_dimensions(c.changed(max_position_embeddings=longest)),
        "positions": "rotary" if rotary else "alibi",
    }


def chatglm(c: Config) -> Dimensions:
    """Returns the dimensions of ChatGLM 2 and 3, and of GLM-4 as it was first published."""
    c.only("rmsnorm", True)
    c.only("add_bias_linear", False)
    grouped = c.flag("multi_query_attention", default=False)
    dimensions: Dimensions = {
        "layers": c.whole("num_layers", "num_hidden_layers"),
        "hidden": c.whole("hidden_size"),
        "heads": c.whole("num_attention_heads"),
        "kv_heads": c.whole("multi_query_group_num", default=1) if grouped else None,
        "head_dim": c.optional("kv_channels"),
        "ffn_hidden": c.whole("ffn_hidden_size"),
        "vocab_size": c.whole("padded_vocab_size", "vocab_size"),
        "sequence_length": c.sequence("seq_length", default=8192),
        "activation": "swiglu",
        "norm": "rmsnorm",
        "positions": "rotary",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }
    if c.flag("add_qkv_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=False)
    return dimensions


def glm(c: Config) -> Dimensions:
    """Returns the dimensions of GLM-4 in `transformers`, whose version of 2025 has four norms in each layer."""
    c.only("hidden_act", "silu", "swish")
    dimensions = {**llama_dimensions(c), "head_dim": c.optional("head_dim")}
    if c.flag("attention_bias", default=c.kind == "glm"):
        dimensions = with_attention_biases(dimensions, output=False)
    return with_norms(dimensions, layer=4 if c.kind.startswith("glm4") else 2)


def granite(c: Config) -> Dimensions:
    """Returns the dimensions of a dense Granite."""
    return extended(llama(c), notes=(MULTIPLIERS,))


def minicpm(c: Config) -> Dimensions:
    """Returns the dimensions of MiniCPM, whose embeddings are tied, also with a mixture of experts."""
    tied = c.changed(tie_word_embeddings=c.flag("tie_word_embeddings", default=True))
    dimensions = extended(decoder(tied), notes=(MULTIPLIERS,))
    if experts := c.count("num_experts"):
        dimensions["mixture_of_experts"] = {"experts": experts, "top_k": c.whole("num_experts_per_tok")}
    return dimensions


def cohere(c: Config) -> Dimensions:
    """Returns the dimensions of Command-R: attention and MLP read the same input, and norms have no biases."""
    c.only("hidden_act", "silu", "swish")
    dimensions = {
        **llama_dimensions(c),
        "norm": "layernorm",
        "parallel_block": True,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    dimensions = with_norms(dimensions, layer=1)
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=True)
    if c.kind == "cohere" and c.flag("use_qk_norm", default=False):
        _, queries, keys = head_sizes(dimensions)
        dimensions = extended(dimensions, layer=queries + keys)
    if c.kind == "cohere2":
        every = c.whole("sliding_window_pattern", "_sliding_window_pattern", default=4)
        dimensions = with_window(c, dimensions, full=dimensions["layers"] // every)
    return dimensions


def nemotron(c: Config) -> Dimensions:
    """Returns the dimensions of Nemotron and AFM, whose MLP has two matrices and a squared ReLU."""
    c.only("hidden_act", "relu2")
    norm = "rmsnorm" if c.kind == "arcee" else "layernorm"
    dimensions = {**llama_dimensions(c), "activation": "relu", "norm": norm}
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=True)
    if c.flag("mlp_bias", default=False):
        dimensions = extended(dimensions, layer=dimensions["ffn_hidden"] + dimensions["hidden"])
    return dimensions


def starcoder2(c: Config) -> Dimensions:
    """Returns the dimensions of StarCoder 2, whose MLP has two matrices."""
    c.only("hidden_act", "gelu_pytorch_tanh", "gelu")
    dimensions = {
        **llama_dimensions(c),
        "activation": "gelu",
        "norm": "layernorm",
        "biases": c.flag("use_bias", default=True),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return with_window(c, dimensions, full=0)


def smollm3(c: Config) -> Dimensions:
    """Returns the dimensions of SmolLM 3, some of whose layers have no positions."""
    tied = c.changed(tie_word_embeddings=c.flag("tie_word_embeddings", default=True))
    dimensions = llama(tied)
    return with_window(c, dimensions, full=0) if c.flag("use_sliding_window", default=False) else dimensions


def exaone(c: Config) -> Dimensions:
    """Returns the dimensions of EXAONE 3."""
    c.only("activation_function", "silu", "swish")
    return llama(c.changed(num_hidden_layers=c.whole("num_layers", "num_hidden_layers"), hidden_act="silu"))


def exaone4(c: Config) -> Dimensions:
    """Returns the dimensions of EXAONE 4, whose queries and keys are normalised in each head."""
    dimensions = unbiased(c)
    size, _, _ = head_sizes(dimensions)
    pattern = c.optional("sliding_window_pattern") if isinstance(c.get("sliding_window_pattern"), int) else 4
    return with_window(c, extended(dimensions, layer=2 * size), full=dimensions["layers"] // (pattern or 4))


def ernie(c: Config) -> Dimensions:
    """Returns the dimensions of a dense ERNIE 4.5."""
    c.only("use_bias", False)
    tied = c.changed(tie_word_embeddings=c.flag("tie_word_embeddings", default=True))
    return unbiased(tied)


TYPES = {
    "Yi": llama,
    "arcee": nemotron,
    "baichuan": baichuan,
    "chatglm": chatglm,
    "cohere": cohere,
    "cohere2": cohere,
    "ernie4_5": ernie,
    "exaone": exaone,
    "exaone4": exaone4,
    "glm": glm,
    "glm4": glm,
    "granite": granite,
    "internlm2": internlm2,
    "internlm3": internlm3,
    "llama": llama,
    "minicpm": minicpm,
    "mistral": mistral,
    "nemotron": nemotron,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo2,
    "phi3": phi3,
    "seed_oss": seed_oss,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
}
"""Reader of each model type."""
