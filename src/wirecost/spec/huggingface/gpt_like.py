"""Decoders like GPT: LayerNorm and an MLP of two matrices, with learned or rotary positions or ALiBi."""

from __future__ import annotations

from wirecost.spec.huggingface.config import Config, Dimensions, extended, head_sizes, with_norms

GELUS = ("gelu_new", "gelu", "gelu_fast", "gelu_pytorch_tanh")


def common(c: Config) -> Dimensions:
    """Returns the dimensions under the names that most model types use."""
    return {
        "layers": c.whole("num_hidden_layers"),
        "hidden": c.whole("hidden_size"),
        "heads": c.whole("num_attention_heads"),
        "ffn_hidden": c.whole("intermediate_size"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.whole("max_position_embeddings"),
    }


def gpt2(c: Config) -> Dimensions:
    """Returns the dimensions of GPT-2."""
    c.only("activation_function", *GELUS)
    return {
        "layers": c.whole("n_layer", "num_hidden_layers"),
        "hidden": c.whole("n_embd", "hidden_size"),
        "heads": c.whole("n_head", "num_attention_heads"),
        "ffn_hidden": c.optional("n_inner"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.whole("n_positions", "n_ctx", "max_position_embeddings"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }


def gpt_bigcode(c: Config) -> Dimensions:
    """Returns the dimensions of StarCoder and SantaCoder: GPT-2 with one head for keys and values."""
    return {**gpt2(c), "kv_heads": 1 if c.flag("multi_query", default=True) else None}


def gpt_neo(c: Config) -> Dimensions:
    """Returns the dimensions of GPT-Neo, half of whose layers attend to a window."""
    c.only("activation_function", *GELUS)
    layers, hidden = c.whole("num_layers"), c.whole("hidden_size")
    dimensions: Dimensions = {
        "layers": layers,
        "hidden": hidden,
        "heads": c.whole("num_heads"),
        "ffn_hidden": c.optional("intermediate_size"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.whole("max_position_embeddings"),
        "sliding_window": c.whole("window_size", default=256),
        "full_attention_layers": -(-layers // 2),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return extended(dimensions, layer=-3 * hidden)  # queries, keys and values have no biases


def gpt_neox(c: Config) -> Dimensions:
    """Returns the dimensions of GPT-NeoX and Pythia."""
    c.only("hidden_act", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
    c.only("attention_bias", True)
    return {
        **common(c),
        "sequence_length": c.sequence("max_position_embeddings"),
        "positions": "rotary",
        "parallel_block": c.flag("use_parallel_residual", default=True),
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }


def gptj(c: Config) -> Dimensions:
    """Returns the dimensions of GPT-J and CodeGen, whose blocks are parallel. Attention has no biases, the head
    has one."""
    dimensions = {
        **gpt2(c),
        "positions": "rotary",
        "parallel_block": True,
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }
    hidden = dimensions["hidden"]
    dimensions = with_norms(dimensions, layer=1, biases=True)
    return extended(dimensions, layer=-4 * hidden, model=dimensions["vocab_size"])


def opt(c: Config) -> Dimensions:
    """Returns the dimensions of OPT. The model of 350M parameters has embeddings of half the width."""
    c.only("activation_function", "relu", "gelu")
    c.only("enable_bias", True)
    dimensions = {
        **common(c.changed(intermediate_size=c.get("ffn_dim"))),
        "activation": c.only("activation_function", "relu", "gelu"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    hidden, vocab = dimensions["hidden"], dimensions["vocab_size"]
    dimensions = extended(dimensions, model=2 * hidden)  # the first position is the third row
    norms = 2 * dimensions["layers"] + 1
    if not c.flag("do_layer_norm_before", default=True) or c.flag("_remove_final_layer_norm", default=False):
        norms -= 1
        dimensions = extended(dimensions, model=-2 * hidden)
    if not c.flag("layer_norm_elementwise_affine", default=True):
        dimensions = extended(dimensions, model=-2 * hidden * norms)
    return with_narrow_embeddings(dimensions, c.whole("word_embed_proj_dim", default=hidden), vocab, projections=2)


def with_narrow_embeddings(dimensions: Dimensions, width: int, rows: int, *, projections: int) -> Dimensions:
    """Returns dimensions with `rows` rows of embeddings of another width than the layers.

    Args:
        projections: number of matrices that convert between both widths.
    """
    hidden = dimensions["hidden"]
    if width == hidden:
        return dimensions
    return extended(
        dimensions,
        model=rows * (width - hidden) + projections * width * hidden,
        notes=(f"embeddings are {width} wide, and predictions take them as wide as the layers",),
    )


def bloom(c: Config) -> Dimensions:
    """Returns the dimensions of BLOOM, which has ALiBi and a norm after the embedding."""
    dimensions: Dimensions = {
        "layers": c.whole("n_layer", "num_hidden_layers"),
        "hidden": c.whole("hidden_size", "n_embed"),
        "heads": c.whole("n_head", "num_attention_heads"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.sequence("seq_length", default=2048),
        "positions": "alibi",
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return extended(dimensions, model=2 * dimensions["hidden"])


def mpt(c: Config) -> Dimensions:
    """Returns the dimensions of MPT, without biases also in its norms."""
    attention = c.part("attn_config")
    attention.only("attn_type", "multihead_attention", "grouped_query_attention")
    c.only("no_bias", True)
    hidden, ratio = c.whole("d_model"), c.number("expansion_ratio", default=4.0)
    if ratio * hidden != int(ratio * hidden) or ratio <= 0:
        raise ValueError(f"expansion_ratio: {ratio:g} times d_model {hidden} is no whole number")
    alibi = attention.flag("alibi", default=True)
    longest = c.whole("max_seq_len")
    dimensions: Dimensions = {
        "layers": c.whole("n_layers"),
        "hidden": hidden,
        "heads": c.whole("n_heads"),
        "kv_heads": attention.optional("kv_n_heads"),
        "ffn_hidden": int(ratio * hidden),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": min(longest, 8192) if alibi else longest,
        "positions": "alibi" if alibi else "learned",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return with_norms(dimensions, layer=2)


def falcon(c: Config) -> Dimensions:
    """Returns the dimensions of Falcon: the 7B model with one head for keys and values, and the new decoder of the
    40B and 180B models with several."""
    new = c.flag("new_decoder_architecture", default=False)
    parallel = new or c.flag("parallel_attn", default=True)
    heads = c.whole("num_attention_heads", "n_head")
    several = c.whole("num_kv_heads", "n_head_kv", default=heads)
    kv_heads = several if new else None
    multi_query = c.flag("multi_query", default=True)
    if multi_query and not new:
        kv_heads = 1
    biases = c.flag("bias", default=False)
    alibi = c.flag("alibi", default=False)
    hidden = c.whole("hidden_size")
    dimensions: Dimensions = {
        "layers": c.whole("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn_hidden": c.whole("ffn_hidden_size", default=4 * hidden),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.sequence("max_position_embeddings", default=2048),
        "positions": "alibi" if alibi else "rotary",
        "biases": biases,
        "parallel_block": parallel,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    norms = c.whole("num_ln_in_parallel_attn", default=2) if new else 1 if parallel else 2
    return with_norms(dimensions, layer=norms, biases=True)


def phi(c: Config) -> Dimensions:
    """Returns the dimensions of Phi-1.5 and Phi-2, whose blocks are parallel and whose head has a bias."""
    c.only("hidden_act", *GELUS)
    dimensions = {
        **common(c),
        "sequence_length": c.sequence("max_position_embeddings"),
        "kv_heads": c.optional("num_key_value_heads"),
        "positions": "rotary",
        "parallel_block": True,
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }
    dimensions = extended(with_norms(dimensions, layer=1, biases=True), model=dimensions["vocab_size"])
    if c.flag("qk_layernorm", default=False):
        size, _, _ = head_sizes(dimensions)
        dimensions = extended(dimensions, layer=4 * size)
    return dimensions


TYPES = {
    "bloom": bloom,
    "codegen": gptj,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "mpt": mpt,
    "opt": opt,
    "phi": phi,
}
"""Reader of each model type."""
