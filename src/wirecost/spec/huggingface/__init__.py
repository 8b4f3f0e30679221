"""Imports workloads from a Hugging Face `config.json`.

The file is read as data only. A configuration that a workload can't describe is an error. Keys and defaults are
those of the `transformers` configuration class of each model type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from wirecost.errors import one_of
from wirecost.spec.huggingface import (
    deepseek,
    dense,
    encoders,
    experts,
    gemma,
    gpt_like,
    llama_like,
    mixtures,
    qwen,
    recent,
)
from wirecost.spec.huggingface.config import Config, Dimensions, extended, shown
from wirecost.spec.huggingface.defaults import DEFAULTS
from wirecost.spec.huggingface.files import PREFIX, cached_configuration, read_configuration
from wirecost.spec.huggingface.multimodal import text_part
from wirecost.spec.huggingface.refused import REFUSED
from wirecost.spec.huggingface.unread import check_unread
from wirecost.text import printable

__all__ = ["REFUSED", "TYPES", "imported"]

TYPES: dict[str, Callable[[Config], Dimensions]] = {
    **deepseek.TYPES,
    **dense.TYPES,
    **encoders.TYPES,
    **experts.TYPES,
    **gemma.TYPES,
    **gpt_like.TYPES,
    **llama_like.TYPES,
    **mixtures.TYPES,
    **qwen.TYPES,
    **recent.TYPES,
}
"""Reader of each model type."""

MOST_KEYS = 10_000
"""Largest number of keys of a model. Published configurations have up to a few hundred."""


_DIMENSIONS = (
    "or give the dimensions in place of the file, as in: wirecost predict "
    "'{layers: 24, hidden: 1024, heads: 16, vocab_size: 50257, sequence_length: 1024}' --cluster dgx-h100"
)


def imported(value: Any) -> dict[str, Any] | None:
    """Returns the data of a workload from a configuration file, or None if `value` doesn't name one.

    Args:
        value: the path of a `.json` file, `hf://ORG/NAME` for a model in the local Hugging Face cache, or a
            mapping with one of them under `config`. Other keys of the mapping override those of the file.

    Raises:
        ValueError: if the file can't be read, or a workload can't describe it. The message is one line.
    """
    changes: dict[str, Any] = {}
    if isinstance(value, Mapping) and "config" in value:
        changes = {key: given for key, given in value.items() if key != "config"}
        value = value["config"]
        if not isinstance(value, str):
            raise ValueError(f"config: should be the path of a Hugging Face config.json, not {shown(value)}")
    elif not is_configuration(value):
        return None
    if value.startswith(PREFIX):
        path = cached_configuration(value)
        name = value.removeprefix(PREFIX).split("/")[-1].split("@")[0]
    else:
        path = Path(value)
        name = path.stem if path.stem != "config" else path.absolute().parent.name
    data = read_configuration(path)
    kind = data.get("model_type")
    if not isinstance(kind, str):
        raise ValueError(f"{path}: model_type: is missing, so this isn't a Hugging Face model configuration")
    try:
        dimensions = _dimensions(data, changes.get("sequence_length"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return {"name": _name(name, kind), "source": f"{kind[:60]} config.json", **dimensions, **changes}


def is_configuration(value: Any) -> TypeGuard[str]:
    """Returns whether a value names a configuration file: the path of a `.json` file, or `hf://ORG/NAME`."""
    return isinstance(value, str) and (value.endswith(".json") or value.startswith(PREFIX))


def _dimensions(data: dict[str, Any], sequence_length: Any) -> Dimensions:
    """Returns the keys of the workload that a configuration describes.

    Args:
        sequence_length: length of a sequence that the user has asked for, unchecked; None without one.
    """
    text, key, notes = text_part(data)
    kind = text.get("model_type")
    where = f"{key}." if key else ""
    for each in (data.get("model_type"), kind):
        if isinstance(each, str) and each in REFUSED:
            raise ValueError(f"model_type '{each}' can't be described: {REFUSED[each]}")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"{where}{one_of('model_type', printable(str(kind)[:60]), TYPES)}; {_DIMENSIONS}")
    if len(text) > MOST_KEYS:
        raise ValueError(
            f"{where}model_type: has {len(text)} keys beside it, and no model has more than {MOST_KEYS}"
        )
    given = sequence_length if type(sequence_length) is int and sequence_length > 0 else None
    config = Config({**DEFAULTS.get(kind, {}), **text}, where, sequence_length=given)
    dimensions = TYPES[kind](config)
    check_unread(config, dimensions, TYPES)
    dimensions = extended(dimensions, notes=notes)
    # A workload that a configuration describes wholly has no further keys.
    return {name: value for name, value in dimensions.items() if type(value) is bool or value not in (0, ())}


def _name(text: str, kind: str) -> str:
    """Returns a workload's name from the name of the file, its folder or the model."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).lstrip("-._+")[:60] or re.sub(r"[^A-Za-z0-9]+", "-", kind)[:60]
