"""Gemma: embeddings that are tied, heads of 256, gated MLPs with GELU."""

from __future__ import annotations

from wirecost.spec.huggingface.config import (
    Config,
    Dimensions,
    extended,
    with_attention_biases,
    with_norms,
    with_window,
)
from wirecost.spec.huggingface.llama_like import llama_dimensions

GATES = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_new": "geglu", "gelu_pytorch_tanh": "geglu"}
"""Activation of a gated MLP by the name of its function."""


def gemma(c: Config) -> Dimensions:
    """Returns the dimensions of the first Gemma."""
    activation = GATES[c.only("hidden_activation" if c.get("hidden_activation") else "hidden_act", *_GEMMA)]
    dimensions = {
        **llama_dimensions(c),
        "head_dim": c.whole("head_dim", default=256),
        "activation": activation,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=True)
    return dimensions


def gemma2(c: Config) -> Dimensions:
    """Returns the dimensions of Gemma 2: four norms in each layer, and a sliding window in every other."""
    dimensions = with_norms(gemma(c), layer=4)
    return extended(
        with_window(c, dimensions, full=dimensions["layers"] // 2),
        notes=(SOFT_CAPS,),
    )


def gemma3(c: Config) -> Dimensions:
    """Returns the dimensions of the text part of Gemma 3: as Gemma 2, with normalised queries and keys."""
    dimensions = with_norms(gemma(c), layer=4)
    dimensions = extended(dimensions, layer=2 * dimensions["head_dim"])
    every = c.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return with_window(c, dimensions, full=dimensions["layers"] // every)


SOFT_CAPS = "the soft caps of attention scores and logits take no time in predictions"
_GEMMA = ("gelu_pytorch_tanh", "gelu", "gelu_new", "silu")


TYPES = {"gemma": gemma, "gemma2": gemma2, "gemma3_text": gemma3}
"""Reader of each model type."""
