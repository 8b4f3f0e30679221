"""Model types that a workload can't describe, each with the reason."""

from __future__ import annotations

_STATE_SPACE = "layers of state-space models have no attention that the formulas describe"
_LINEAR = "layers with linear attention are not described by the formulas"
_SPARSE = "sparse attention, which chooses tokens by an indexer, is not described by the formulas"
_HEADS = "its layers with and without a window differ in their heads"
_RECURRENT = "recurrent layers are not described by the formulas"
_SHARED = "all layers share one set of parameters"
_NOT_TEXT = "it is no language model"
_GATED = "attention whose outputs are gated is not described by the formulas"
_LOOPS = "layers that are run several times are not described by the formulas"
_CONVOLUTIONS = "layers of short convolutions are not described by the formulas"
_CROSS = "of encoders with a decoder, T5 and its like are described, and no others"
_BYTES = "its encoder and decoder of bytes around the layers are not described by the formulas"
_PER_LAYER = "its embeddings of each layer and nested MLPs are not described by the formulas"

REFUSED = {
    "afmoe": _GATED,
    "albert": _SHARED,
    "arctic": "its layers have experts beside an MLP of another width",
    "axk2": _SPARSE,
    "bailing_hybrid": _LINEAR,
    "bailing_moe_linear": _LINEAR,
    "bailing_moe_v3": _LINEAR,
    "bamba": _STATE_SPACE,
    "bart": _CROSS,
    "beam": _GATED,
    "bigbird_pegasus": _CROSS,
    "blenderbot": _CROSS,
    "blenderbot-small": _CROSS,
    "blt": _BYTES,
    "clip": _NOT_TEXT,
    "deci": "its layers differ from each other",
    "deepseek_ref": _SPARSE,
    "deepseek_v32": _SPARSE,
    "deepseek_v4": _SPARSE,
    "diffllama": "differential attention is not described by the formulas",
    "diffusion_gemma": _HEADS,
    "diffusion_gemma_text": _HEADS,
    "doge": "attention with a mask that the model computes is not described by the formulas",
    "dory": _LOOPS,
    "dots3_note": _SPARSE,
    "dots3_note_text": _SPARSE,
    "encoder-decoder": _CROSS,
    "ernie4_5_vl_moe": "its experts for text and for images differ in their width",
    "ernie4_5_vl_moe_text": "its experts for text and for images differ in their width",
    "falcon_h1": _STATE_SPACE,
    "falcon_mamba": _STATE_SPACE,
    "fsmt": _CROSS,
    "gemma3n": _PER_LAYER,
    "gemma3n_text": _PER_LAYER,
    "gemma4": _HEADS,
    "gemma4_assistant": _HEADS,
    "gemma4_text": _HEADS,
    "gemma4_unified": _HEADS,
    "gemma4_unified_assistant": _HEADS,
    "gemma4_unified_text": _HEADS,
    "glm5_next": _SPARSE,
    "glm5_next_text": _SPARSE,
    "glm_moe_dsa": _SPARSE,
    "granitemoehybrid": _STATE_SPACE,
    "hrm_text": _LOOPS,
    "hy_v4": _SPARSE,
    "hy_v4_vl": _SPARSE,
    "hy_v4_vl_text": _SPARSE,
    "hyena": "layers of long convolutions are not described by the formulas",
    "inkling2": _CONVOLUTIONS,
    "inkling2_loop": _CONVOLUTIONS,
    "inkling2_loop_text": _CONVOLUTIONS,
    "inkling2_text": _CONVOLUTIONS,
    "inkling_mm_model": _CONVOLUTIONS,
    "inkling_text": _CONVOLUTIONS,
    "jamba": _STATE_SPACE,
    "jetmoe": "attention with a mixture of experts is not described by the formulas",
    "kimi_linear": _LINEAR,
    "laguna": _HEADS,
    "lara_mini": _LINEAR,
    "led": _CROSS,
    "lfm2": _CONVOLUTIONS,
    "lfm2_moe": _CONVOLUTIONS,
    "lfm3": _CONVOLUTIONS,
    "lfm3_vl": _CONVOLUTIONS,
    "longcat_flash": "its layers have two attentions, and experts that compute nothing",
    "longt5": _CROSS,
    "m2m_100": _CROSS,
    "mamba": _STATE_SPACE,
    "mamba2": _STATE_SPACE,
    "marian": _CROSS,
    "mbart": _CROSS,
    "mimo_v2_flash": _HEADS,
    "minimax": _LINEAR,
    "minimax_m3": _SPARSE,
    "minimax_m3_vl": _SPARSE,
    "minimax_m3_vl_text": _SPARSE,
    "minimax_text_01": _LINEAR,
    "mistral_large4": _SPARSE,
    "mistral_large4_text": _SPARSE,
    "mllama": "layers of cross attention to images are not described by the formulas",
    "mllama_text_model": "layers of cross attention to images are not described by the formulas",
    "mvp": _CROSS,
    "nemotron-nas": "its layers differ from each other",
    "nemotron_h": _STATE_SPACE,
    "nllb-moe": _CROSS,
    "olmo_hybrid": _LINEAR,
    "openelm": "its layers differ from each other",
    "pegasus": _CROSS,
    "pegasus_x": _CROSS,
    "plbart": _CROSS,
    "prophetnet": _CROSS,
    "qwen3_5": _LINEAR,
    "qwen3_5_moe": _LINEAR,
    "qwen3_5_moe_text": _LINEAR,
    "qwen3_5_text": _LINEAR,
    "qwen3_next": _LINEAR,
    "qwen4_exp": _LINEAR,
    "qwen4_exp_text": _LINEAR,
    "recurrent_gemma": _RECURRENT,
    "reformer": "layers with attention by hashing are not described by the formulas",
    "rwkv": _RECURRENT,
    "rwkv5": _RECURRENT,
    "rwkv6": _RECURRENT,
    "rwkv6qwen2": _RECURRENT,
    "rwkv7": _RECURRENT,
    "step3p5": _HEADS,
    "step3p7": _HEADS,
    "switch_transformers": _CROSS,
    "t5gemma": _CROSS,
    "t5gemma2": _CROSS,
    "vit": _NOT_TEXT,
    "wav2vec2": _NOT_TEXT,
    "whisper": _NOT_TEXT,
    "xlstm": _RECURRENT,
    "zamba": _STATE_SPACE,
    "zamba2": _STATE_SPACE,
    "zaya": _CONVOLUTIONS,
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
