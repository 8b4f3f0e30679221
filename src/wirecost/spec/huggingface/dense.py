"""Further dense decoders, most of them like Llama or GPT with a difference in norms, biases or positions."""

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
from wirecost.spec.huggingface.deepseek import with_latent_attention
from wirecost.spec.huggingface.gemma import SOFT_CAPS, gemma
from wirecost.spec.huggingface.gpt_like import GELUS, common, gpt2
from wirecost.spec.huggingface.llama_like import (
    MULTIPLIERS,
    granite,
    internlm2,
    llama,
    llama_dimensions,
    mistral,
    nemotron,
    unbiased,
)

SINUSOIDAL = "sinusoidal positions, which are no parameters, are predicted as rotary ones"


def internlm(c: Config) -> Dimensions:
    """Returns the dimensions of the first InternLM, whose attention has biases unless a key says otherwise."""
    return internlm2(c.changed(bias=c.flag("bias", default=True)))


def orion(c: Config) -> Dimensions:
    """Returns the dimensions of Orion: a Llama with LayerNorm."""
    return {**unbiased(c), "norm": "layernorm"}


def cwm(c: Config) -> Dimensions:
    """Returns the dimensions of CWM: a Llama with a sliding window in three of four layers."""
    dimensions = llama(c.changed(attention_bias=False))
    return with_window(c, dimensions, full=-(-dimensions["layers"] // 4))


def helium(c: Config) -> Dimensions:
    """Returns the dimensions of Helium, whose heads are together as wide as the model."""
    dimensions = llama(c.changed(attention_bias=False))
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=False)
    if head_sizes(dimensions)[1] != dimensions["hidden"]:
        raise ValueError(
            f"{c.where}head_dim: should be hidden_size / num_attention_heads, as in the published model"
        )
    return dimensions


def hyperclovax(c: Config) -> Dimensions:
    """Returns the dimensions of HyperCLOVA X: a Granite with four norms in each layer."""
    dimensions = granite(c)
    return with_norms(dimensions, layer=4) if c.flag("use_post_norm", default=True) else dimensions


def granite_swa(c: Config) -> Dimensions:
    """Returns the dimensions of Granite with a sliding window in three of four layers and a sink in each head."""
    return with_sinks(with_window(c, granite(c), full=-(-c.whole("num_hidden_layers") // 4)))


def with_sinks(dimensions: Dimensions) -> Dimensions:
    """Returns dimensions with an attention sink in each head."""
    return extended(dimensions, layer=dimensions["heads"], notes=("attention sinks take no time in predictions",))


def youtu(c: Config) -> Dimensions:
    """Returns the dimensions of Youtu-LLM, a dense model with latent attention."""
    dense = unbiased(c.changed(tie_word_embeddings=c.flag("tie_word_embeddings", default=True)))
    return with_latent_attention(c, dense)


def vaultgemma(c: Config) -> Dimensions:
    """Returns the dimensions of VaultGemma: a Gemma 2 with two norms in each layer."""
    dimensions = gemma(c)
    return extended(with_window(c, dimensions, full=dimensions["layers"] // 2), notes=(SOFT_CAPS,))


def nanochat(c: Config) -> Dimensions:
    """Returns the dimensions of nanochat: norms have no parameters, and the MLP has a squared ReLU."""
    c.only("hidden_act", "relu2")
    dimensions = with_norms({**llama_dimensions(c), "activation": "relu"}, layer=0, final=0)
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=True)
    return dimensions


def jais2(c: Config) -> Dimensions:
    """Returns the dimensions of Jais 2: a Nemotron with biases."""
    biases = {key: c.flag(key, default=True) for key in ("attention_bias", "mlp_bias")}
    return nemotron(c.changed(**biases))


def bitnet(c: Config) -> Dimensions:
    """Returns the dimensions of BitNet, with a norm before the last product of attention and of the MLP."""
    c.only("hidden_act", "relu2")
    dimensions = llama_dimensions(c)
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=True)
    note = "weights of three values are predicted as bf16, and a gate with a squared ReLU as SwiGLU"
    return extended(dimensions, layer=dimensions["hidden"] + dimensions["ffn_hidden"], notes=(note,))


def persimmon(c: Config) -> Dimensions:
    """Returns the dimensions of Persimmon: a GPT with rotary positions, and normalised queries and keys."""
    c.only("hidden_act", "relu2", "relu")
    dimensions: Dimensions = {
        **common(c),
        "sequence_length": c.sequence("max_position_embeddings"),
        "activation": "relu",
        "positions": "rotary",
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }
    if c.flag("qk_layernorm", default=True):
        dimensions = extended(dimensions, layer=4 * head_sizes(dimensions)[0])
    return dimensions


def phi_msft(c: Config) -> Dimensions:
    """Returns the dimensions of Phi-1.5 and Phi-2 as they were first published, also with a mixture of experts
    (Phixtral). Blocks are parallel, and the head has a bias."""
    c.only("activation_function", *GELUS)
    dimensions: Dimensions = {
        "layers": c.whole("n_layer", "num_hidden_layers"),
        "hidden": c.whole("n_embd", "hidden_size"),
        "heads": c.whole("n_head", "num_attention_heads"),
        "kv_heads": c.optional("n_head_kv"),
        "ffn_hidden": c.optional("n_inner", "intermediate_size"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.sequence("n_positions", "max_position_embeddings", default=2048),
        "positions": "rotary",
        "parallel_block": True,
        "tied_embeddings": c.flag("tie_word_embeddings", default=False),
    }
    if (experts := c.count("num_local_experts")) > 1:
        dimensions["mixture_of_experts"] = {"experts": experts, "top_k": c.whole("num_experts_per_tok", default=2)}
    return extended(with_norms(dimensions, layer=1, biases=True), model=dimensions["vocab_size"])


def jais(c: Config) -> Dimensions:
    """Returns the dimensions of the first Jais: a GPT-2 with ALiBi and a gated MLP."""
    gated = c.only("activation_function", "swiglu", *GELUS) == "swiglu"
    alibi = c.only("position_embedding_type", "alibi", "learned") == "alibi"
    dimensions = {**gpt2(c.changed(activation_function=None)), "activation": "swiglu" if gated else "gelu"}
    return extended({**dimensions, "positions": "alibi" if alibi else "learned"}, notes=(MULTIPLIERS,))


def openai_gpt(c: Config) -> Dimensions:
    """Returns the dimensions of the first GPT, whose norms follow each block, so that there is no final one."""
    c.only("afn", *GELUS)
    return with_norms(gpt2(c.changed(activation_function=None)), layer=2, final=0, biases=True)


def biogpt(c: Config) -> Dimensions:
    """Returns the dimensions of BioGPT. Two rows of the positions are never used."""
    c.only("hidden_act", *GELUS)
    dimensions = {**common(c), "tied_embeddings": c.flag("tie_word_embeddings", default=True)}
    return extended(dimensions, model=2 * dimensions["hidden"], notes=(MULTIPLIERS,))


def xglm(c: Config) -> Dimensions:
    """Returns the dimensions of XGLM, whose positions are sinusoidal."""
    c.only("activation_function", *GELUS)
    dimensions: Dimensions = {
        "layers": c.whole("num_layers", "num_hidden_layers"),
        "hidden": c.whole("d_model", "hidden_size"),
        "heads": c.whole("attention_heads", "num_attention_heads"),
        "ffn_hidden": c.whole("ffn_dim"),
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.sequence("max_position_embeddings"),
        "positions": "rotary",
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return extended(dimensions, notes=(SINUSOIDAL,))


def gpt_neox_japanese(c: Config) -> Dimensions:
    """Returns the dimensions of the Japanese GPT-NeoX. Its products have no biases, but for that of attention in
    the last layer."""
    c.only("hidden_act", *GELUS)
    hidden = c.whole("hidden_size")
    dimensions: Dimensions = {
        "layers": c.whole("num_hidden_layers"),
        "hidden": hidden,
        "heads": c.whole("num_attention_heads"),
        "ffn_hidden": c.whole("intermediate_multiple_size", default=4) * hidden,
        "vocab_size": c.whole("vocab_size"),
        "sequence_length": c.sequence("max_position_embeddings"),
        "positions": "rotary",
        "biases": False,
        "tied_embeddings": c.flag("tie_word_embeddings", default=True),
    }
    return extended(dimensions, model=hidden)


TYPES = {
    "aquila": unbiased,
    "biogpt": biogpt,
    "bitnet": bitnet,
    "cwm": cwm,
    "gpt_neox_japanese": gpt_neox_japanese,
    "granite_swa": granite_swa,
    "helium": helium,
    "hyperclovax": hyperclovax,
    "internlm": internlm,
    "iquestcoder": llama,
    "jais": jais,
    "jais2": jais2,
    "ministral": mistral,
    "ministral3": mistral,
    "nanochat": nanochat,
    "openai-gpt": openai_gpt,
    "orion": orion,
    "persimmon": persimmon,
    "phi-msft": phi_msft,
    "skywork": unbiased,
    "vaultgemma": vaultgemma,
    "xglm": xglm,
    "xverse": unbiased,
    "youtu": youtu,
}
"""Reader of each model type."""
