"""Refuses keys that change the size of a model, and that the reader of its model type doesn't know.

`transformers` ignores such keys without a word. They come from files that name the wrong model type, as those of
converted or quantized models, and from models with code of their own. Either way the dimensions would be wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from wirecost.spec.huggingface.config import Config, Dimensions, KeyNames, shown
from wirecost.spec.huggingface.size_keys import BIAS, LATENT, NO_SIZE, QK_NORM, RULES, names_other_layers

QK_NORMALISED = (
    "apertus", "dots1", "exaone4", "exaone_moe", "flex_olmo", "flint", "gemma3_text", "kolibri1", "llama4_text",
    "mellum", "olmo2", "olmo3", "olmoe", "qwen3", "qwen3_moe",
)  # fmt: skip
"""Model types that normalise queries and keys, whether or not a key says so."""
QKV_BIASED = ("chatglm", "mimo", "phimoe", "qwen", "qwen2", "qwen2_moe")
"""Model types whose queries, keys and values have biases, whether or not a key says so."""

IGNORED = {
    "codegen": ("intermediate_size",),
    "falcon": ("intermediate_size",),
    "gpt2": ("intermediate_size",),
    "gpt_bigcode": ("intermediate_size",),
    "gptj": ("intermediate_size",),
}
"""Keys by model type that published configurations have, and that mean nothing to the model. The small models with
which `transformers` is tested are published with a width of the MLP under a name that these types don't read."""


def check_unread(c: Config, dimensions: Dimensions, readers: dict[str, Callable[[Config], Dimensions]]) -> None:
    """Refuses a configuration with a key that its reader didn't look up, and that describes another model.

    Args:
        c: the configuration, which has been read.
        dimensions: what was read of it.
        readers: the reader of each model type, which tells the types that have the key.

    Raises:
        ValueError: for such a key, or if `layer_types` has no item for some layers. The message is one line.
    """
    unknown = list(_telling(c, dimensions))
    if names_other_layers(kinds := c.get("layer_types")):
        unknown.insert(0, (c.where, "layer_types", kinds))
    if not unknown:
        if isinstance(kinds, list):
            c.of_layers("layer_types", dimensions["layers"])
        return
    where, key, value = unknown[0]
    names = {name for _, name, _ in unknown}
    fitting = [kind for kind, reader in readers.items() if key != "layer_types" and names <= _names(reader, kind)]
    right = f"set a model_type that has it ({', '.join(fitting[:6])})" if fitting else "no known model_type has it"
    raise ValueError(
        f"{where}{key}: {shown(value)} isn't what models of model_type '{c.kind[:60]}' have, so their number of "
        f"parameters would be wrong; {right}, or leave the key out if the model doesn't use it"
    )


def _names(reader: Callable[[Config], Dimensions], kind: str) -> set[str]:
    """Returns the keys that the reader of a model type looks up."""
    keys = KeyNames(kind)
    with contextlib.suppress(ValueError):  # of numbers that don't fit together
        reader(keys)
    return keys.names()


def _telling(c: Config, dimensions: Dimensions) -> Iterator[tuple[str, str, Any]]:
    latent = c.get("use_mla") is not False
    for where, key, written in c.unread():
        name = key.lower()[:100]
        value = _BOOLEANS.get(written.lower(), written) if isinstance(written, str) else written
        if name in IGNORED.get(c.kind, ()) or (not latent and LATENT.fullmatch(name)):
            continue
        if value in (None, False, 0, "", [], {}) and not _is_missing_bias(name, value, dimensions):
            continue
        if NO_SIZE.fullmatch(name) or _always_there(c.kind, name, value):
            continue
        if any(pattern.fullmatch(name) and differs(name, value, dimensions) for pattern, differs in RULES):
            yield where, key, written


_BOOLEANS = {"true": True, "false": False}


def _always_there(kind: str, name: str, value: Any) -> bool:
    """Returns whether a key says what all models of a type have."""
    if value is not True:
        return False
    return (kind in QK_NORMALISED and bool(QK_NORM.fullmatch(name))) or (
        kind in QKV_BIASED and name in ("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias")
    )


def _is_missing_bias(name: str, value: Any, dimensions: Dimensions) -> bool:
    """Returns whether a key takes biases away that the dimensions have."""
    return value is False and bool(BIAS.fullmatch(name)) and name != "no_bias" and dimensions.get("biases", True)
