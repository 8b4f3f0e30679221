"""Configurations of models that read images, video or audio: their text part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wirecost.spec.huggingface.config import shown
from wirecost.text import printable

TEXT_KEYS = ("text_config", "llm_config", "language_config")
"""Keys under which the text part of a configuration is."""
OTHER_PARTS = ("vision_config", "audio_config", "visual", "vision_tower", "mm_vision_tower")
"""Keys of other parts, which may stand beside the keys of a text part that has no key of its own."""
PLAIN = {
    "apertus1p5": "apertus",
    "apertus1p5_text": "apertus",
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "llava_llama": "llama",
    "llava_mistral": "mistral",
    "llava_qwen": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
    "smolvlm": "llama",
    "idefics3": "llama",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "paddleocr_vl_text": "ernie4_5",
    "paligemma": "gemma",
    "phi3_v": "phi3",
    "phi4mm": "phi3",
    "glm4v_text": "glm4",
    "glm4v": "glm4",
    "glm4v_moe": "glm4_moe",
    "glm4v_moe_text": "glm4_moe",
}
"""Model type of the text part, by the type of the model or of its text part."""
_GEMMA3 = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
}
_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
_MISTRAL = {**_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072}
_QWEN2 = {
    **_LLAMA,
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {**_LLAMA, "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576}
    | {"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256}
    | {"max_position_embeddings": 8192},
    "gemma2": {**_GEMMA3, "vocab_size": 256000, "max_position_embeddings": 8192},
    "gemma3_text": _GEMMA3,
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "qwen2": _QWEN2,
}
"""Values that text parts leave out, because they are those of the configuration class in `transformers`. A whole
configuration states them."""


def text_part(data: Mapping[str, Any]) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """Returns the configuration of the text part, its key, and what to say about the rest. The configuration of
    a model that reads text alone is returned as it is, with an empty key.

    Raises:
        ValueError: if the text part isn't a mapping.
    """
    outer = str(data.get("model_type"))
    key = next((key for key in TEXT_KEYS if data.get(key) is not None), None)
    note = f"only the text part of {printable(outer[:40])} is counted, without its encoders of images or sound"
    if key is not None:
        inner = data[key]
        if not isinstance(inner, dict):
            raise ValueError(f"{key}: should be a mapping, not {shown(inner)}")
        kind = inner.get("model_type") or outer
        kind = PLAIN.get(kind, kind) if isinstance(kind, str) else kind
        whole = DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
        tied = {k: data[k] for k in ("tie_word_embeddings",) if k in data and k not in inner}
        return {**whole, **tied, **inner, "model_type": kind}, key, (note,)
    notes = (note,) if any(part in data for part in OTHER_PARTS) or outer in PLAIN else ()
    return {**data, **({"model_type": PLAIN[outer]} if outer in PLAIN else {})}, "", notes
