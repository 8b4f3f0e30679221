"""Model types that a workload can't describe, each with the reason."""

from __future__ import annotations

_STATE_SPACE = "layers of state-space models have no attention that the formulas describe"
_LINEAR = "layers with linear attention are not described by the formulas"
_SPARSE = "sparse attention, which chooses tokens by an indexer, is not described by the formulas"
_HEADS = "its layers with and without a window differ in their heads"
_RECURRENT = "recurrent layers are not described by the formulas"
_SHARED = "all layers share one set of parameters"
_NOT_TEXT = "it is no language model"

REFUSED = {
    "albert": _SHARED,
    "bailing_moe_linear": _LINEAR,
    "bailing_moe_v3": _LINEAR,
    "bamba": _STATE_SPACE,
    "clip": _NOT_TEXT,
    "deci": "its layers differ from each other",
    "deepseek_ref": _SPARSE,
    "deepseek_v32": _SPARSE,
    "deepseek_v4": _SPARSE,
    "falcon_h1": _STATE_SPACE,
    "falcon_mamba": _STATE_SPACE,
    "gemma3n": "its embeddings of each layer and nested MLPs are not described by the formulas",
    "gemma3n_text": "its embeddings of each layer and nested MLPs are not described by the formulas",
    "gemma4": _HEADS,
    "gemma4_text": _HEADS,
    "glm_moe_dsa": _SPARSE,
    "granitemoehybrid": _STATE_SPACE,
    "hyena": "layers of long convolutions are not described by the formulas",
    "jamba": _STATE_SPACE,
    "kimi_linear": _LINEAR,
    "lfm2": "layers of short convolutions are not described by the formulas",
    "lfm2_moe": "layers of short convolutions are not described by the formulas",
    "mamba": _STATE_SPACE,
    "mamba2": _STATE_SPACE,
    "mimo_v2_flash": _HEADS,
    "minimax": _LINEAR,
    "minimax_m3": _SPARSE,
    "minimax_m3_vl": _SPARSE,
    "minimax_m3_vl_text": _SPARSE,
    "minimax_text_01": _LINEAR,
    "mllama": "layers of cross attention to images are not described by the formulas",
    "mllama_text_model": "layers of cross attention to images are not described by the formulas",
    "nemotron-nas": "its layers differ from each other",
    "nemotron_h": _STATE_SPACE,
    "openelm": "its layers differ from each other",
    "qwen3_5": _LINEAR,
    "qwen3_5_moe": _LINEAR,
    "qwen3_5_moe_text": _LINEAR,
    "qwen3_5_text": _LINEAR,
    "qwen3_next": _LINEAR,
    "recurrent_gemma": _RECURRENT,
    "reformer": "layers with attention by hashing are not described by the formulas",
    "rwkv": _RECURRENT,
    "rwkv5": _RECURRENT,
    "rwkv6": _RECURRENT,
    "rwkv6qwen2": _RECURRENT,
    "rwkv7": _RECURRENT,
    "vit": _NOT_TEXT,
    "wav2vec2": _NOT_TEXT,
    "whisper": _NOT_TEXT,
    "xlstm": _RECURRENT,
    "zamba": _STATE_SPACE,
    "zamba2": _STATE_SPACE,
}
"""Reason by model type."""

HYBRIDS = (
    "nemotron3nano", "nemotron3super", "nemotron3ultra", "nemotron35", "nemotronh", "nemotronnano", "mamba",
    "jamba", "zamba", "bamba", "falconh1", "granite4",
)  # fmt: skip
"""Names of models that mix attention with state-space layers, in plain spelling."""


WITH_INDEXER = ("deepseekv32", "deepseekv4", "glm5")
"""Names of models with sparse attention, in plain spelling."""


def refused_name(name: str) -> str | None:
    """Returns why a model of a name has no formulas, if it mixes attention with state-space layers or has sparse
    attention, or None."""
    spelled = "".join(letter for letter in name[:100].lower() if letter.isalnum())
    # Llama-3.1-Nemotron-Nano is a Llama.
    if "llama" not in spelled and any(each in spelled for each in HYBRIDS):
        return f"{name[:60]} mixes attention with state-space layers, for which there are no formulas"
    if any(each in spelled for each in WITH_INDEXER):
        return f"{name[:60]} has sparse attention, which is not described by the formulas"
    return None
