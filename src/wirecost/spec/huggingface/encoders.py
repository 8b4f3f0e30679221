"""Encoders, and models with an encoder and a decoder."""

from __future__ import annotations

from wirecost.spec.huggingface.config import (
    Config,
    Dimensions,
    extended,
    with_attention_biases,
    with_norms,
    with_window,
)
from wirecost.spec.huggingface.gpt_like import common, with_narrow_embeddings


def bert(c: Config) -> Dimensions:
    """Returns the dimensions of BERT with its heads for pretraining."""
    c.only("hidden_act", "gelu", "gelu_new")
    c.only("position_embedding_type", "absolute")
    c.only("is_decoder", False)
    dimensions = {**common(c), "family": "bert", "tied_embeddings": c.flag("tie_word_embeddings", default=True)}
    rows = c.count("type_vocab_size") if c.has("type_vocab_size") else 2
    return extended(dimensions, model=(rows - 2) * dimensions["hidden"])


def _heads(dimensions: Dimensions) -> int:
    """Returns the parameters of the heads that a workload of family bert has: the pooler's and the masked language
    model's transforms, a norm, the vocabulary's biases and the classifier of two sentences."""
    h: int = dimensions["hidden"]
    return 2 * (h * h + h) + 2 * h + int(dimensions["vocab_size"]) + 2 * h + 2


def masked_head(dimensions: Dimensions, embedding_size: int | None = None) -> int:
    """Returns the parameters of a head for masked language models alone, whose transform ends at the width of the
    embedding."""
    h: int = dimensions["hidden"]
    width = embedding_size or h
    return h * width + width + 2 * width + int(dimensions["vocab_size"])


def with_head(dimensions: Dimensions, parameters: int) -> Dimensions:
    """Returns dimensions whose extra parameters replace the heads of BERT by others."""
    return extended(dimensions, model=parameters - _heads(dimensions))


def roberta(c: Config) -> Dimensions:
    """Returns the dimensions of RoBERTa and XLM-RoBERTa. Two rows of the positions are never used."""
    dimensions = bert(c)
    dimensions = with_head(dimensions, masked_head(dimensions))
    unused = dimensions["sequence_length"] % 8
    return extended(
        {**dimensions, "sequence_length": dimensions["sequence_length"] - unused},
        model=unused * dimensions["hidden"],
    )


def distilbert(c: Config) -> Dimensions:
    """Returns the dimensions of DistilBERT, without types of tokens."""
    c.only("activation", "gelu")
    dimensions: Dimensions = {
        "family": "bert",
        "layers": c.whole("n_layers"),
        "hidden": c.whole("dim"),
        "heads": c.whole("n_heads"),
        "ffn_hidden": c.whole("hidden_dim"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.whole("max_position_embeddings"),
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return extended(with_head(dimensions, masked_head(dimensions)), model=-2 * dimensions["hidden"])


def electra(c: Config) -> Dimensions:
    """Returns the dimensions of ELECTRA's discriminator, which has a classifier of tokens as its head."""
    dimensions = bert(c)
    hidden, vocab = dimensions["hidden"], dimensions["vocab_size"]
    width = c.whole("embedding_size", default=hidden)
    rows = vocab + dimensions["sequence_length"] + c.whole("type_vocab_size", default=2) + 2
    dimensions = with_head(dimensions, hidden * hidden + hidden + hidden + 1)
    # The norm after the embedding has the embedding's width, and the projection has a bias.
    dimensions = with_narrow_embeddings(dimensions, width, rows, projections=1)
    dimensions = extended(dimensions, model=hidden if width != hidden else 0)
    note = "ELECTRA's generator, which trains beside the discriminator, is not counted; its head has no vocabulary"
    return extended(dimensions, notes=(note,))


def deberta(c: Config) -> Dimensions:
    """Returns the dimensions of DeBERTa with the head for masked language models."""
    c.only("hidden_act", "gelu", "gelu_new")
    second = c.kind == "deberta-v2"
    tied = c.flag("tie_word_embeddings", default=True)
    dimensions = {**common(c), "family": "bert", "tied_embeddings": tied}
    h = dimensions["hidden"]
    longest, types = dimensions["sequence_length"], c.count("type_vocab_size")
    width = c.whole("embedding_size", default=h)
    dimensions = with_head(dimensions, masked_head(dimensions, width))
    model = (types - 2) * h
    positions = longest if c.flag("position_biased_input", default=True) else 0
    model -= (longest - positions) * h
    rows = dimensions["vocab_size"] + types + positions
    dimensions = with_narrow_embeddings(dimensions, width, rows, projections=1)
    layer = 0
    kinds = c.get("pos_att_type") or []
    terms = kinds.split("|") if isinstance(kinds, str) else c.items("pos_att_type")
    if c.flag("relative_attention", default=False):
        buckets = c.get("position_buckets")
        span = buckets if type(buckets) is int and buckets > 0 else longest
        model += 2 * span * h
        if second and "layer_norm" in str(c.get("norm_rel_ebd")):
            model += 2 * h
        if not (second and c.flag("share_att_key", default=False)):
            layer += ("c2p" in terms) * h * (h + second) + ("p2c" in terms) * (h * h + h)
    if not second:
        layer -= h  # keys have no biases
    if kernel := c.count("conv_kernel_size"):
        model += kernel * h * h + h + 2 * h
    notes = ("disentangled attention is predicted as ordinary attention",)
    return extended(dimensions, layer=layer, model=model, notes=notes)


def modernbert(c: Config) -> Dimensions:
    """Returns the dimensions of ModernBERT: gated MLPs, rotary positions and a window in two of three layers."""
    c.only("hidden_activation", "gelu")
    dimensions = {
        **common(c),
        "family": "bert",
        "sequence_length": c.sequence("max_position_embeddings"),
        "activation": "geglu",
        "positions": "rotary",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    h, vocab = dimensions["hidden"], dimensions["vocab_size"]
    every = c.whole("global_attn_every_n_layers", default=3)
    full = -(-dimensions["layers"] // every)
    norm = 2 * h if c.flag("norm_bias", default=False) else h
    dimensions = with_norms(dimensions, layer=2, biases=norm > h)
    # The first layer's attention has no norm, as the embedding has one. The head is a matrix, a norm and biases.
    head = h * h + norm + (h if c.flag("classifier_bias", default=False) else 0)
    head += vocab if c.flag("decoder_bias", default=True) else 0
    dimensions = extended(with_head(dimensions, head), model=-2 * h)
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=True)
    if c.flag("mlp_bias", default=False):
        dimensions = extended(dimensions, layer=2 * dimensions["ffn_hidden"] + h)
    return with_window(c, dimensions, full=full, key="local_attention")


T5_ACTIVATIONS = {"relu": "relu", "gated-gelu": "geglu", "gated-silu": "swiglu"}


def t5(c: Config) -> Dimensions:
    """Returns the dimensions of T5, mT5, FLAN-T5 and UL2."""
    c.only("relative_attention_num_buckets", 32)
    layers = c.whole("num_layers")
    first = "gated-gelu" if c.kind in ("mt5", "umt5") else "relu"
    activations = sorted(T5_ACTIVATIONS, key=lambda name: name != first)
    activation = T5_ACTIVATIONS[c.only("feed_forward_proj", *activations)]
    c.only("is_gated_act", activation != "relu")
    heads = c.whole("num_heads")
    decoder_layers = c.whole("num_decoder_layers", default=layers)
    dimensions: Dimensions = {
        "family": "t5",
        "layers": layers,
        "decoder_layers": decoder_layers,
        "hidden": c.whole("d_model"),
        "heads": heads,
        "head_dim": c.whole("d_kv"),
        "ffn_hidden": c.whole("d_ff"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.whole("n_positions", default=512),
        "activation": activation,
        "norm": "rmsnorm",
        "positions": "relative",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=c.kind == "t5"),
    }
    if c.kind == "umt5":  # every layer has relative positions
        dimensions = extended(dimensions, model=32 * heads * (layers + decoder_layers - 2))
    return dimensions


TYPES = {
    "bert": bert,
    "camembert": roberta,
    "deberta": deberta,
    "deberta-v2": deberta,
    "distilbert": distilbert,
    "electra": electra,
    "modernbert": modernbert,
    "mt5": t5,
    "roberta": roberta,
    "t5": t5,
    "umt5": t5,
    "xlm-roberta": roberta,
}
"""Reader of each model type."""
