"""DeepSeek, and models with its router or its latent attention."""

from __future__ import annotations

from wirecost.spec.huggingface.config import Config, Dimensions, extended, head_sizes, with_attention_biases
from wirecost.spec.huggingface.llama_like import MULTIPLIERS, decoder, llama_dimensions


def deepseek(c: Config) -> Dimensions:
    """Returns the dimensions of DeepSeek's mixture of experts with ordinary attention, as of DeepSeek-MoE-16B."""
    third = c.kind in THIRD
    scorings = ("sigmoid", "softmax") if third else ("softmax", "sigmoid")
    c.only("moe_layer_freq", 1)
    return {
        **decoder(c),
        "mixture_of_experts": {
            "experts": c.whole("n_routed_experts"),
            "top_k": c.whole("num_experts_per_tok"),
            "expert_ffn_hidden": c.whole("moe_intermediate_size"),
            "shared_experts": c.count("n_shared_experts"),
            "dense_layers": c.count("first_k_dense_replace"),
            "scoring": c.only("scoring_func", *scorings),
            "normalised": c.flag("norm_topk_prob", default=third),
            "scaling": c.number("routed_scaling_factor", default=1.0),
            "aux_loss": c.number("aux_loss_alpha", default=0.0 if third else 0.001),
        },
    }


THIRD = (
    "axk1", "deepseek_v3", "dots1", "glm4_moe", "glm4_moe_lite", "kimi_k2", "sarvam_mla", "sarvam_moe",
    "solar_open",
)  # fmt: skip
"""Model types whose router is that of DeepSeek-V3."""


def deepseek_v2(c: Config) -> Dimensions:
    """Returns the dimensions of DeepSeek-V2 and V3, whose experts are in groups and whose attention is latent."""
    dimensions = deepseek(c.changed(attention_bias=False))
    methods = ["greedy", "group_limited_greedy", "noaux_tc"]
    if c.kind in THIRD:
        methods.reverse()
    groups = {"groups": c.whole("n_group", default=1), "top_k_groups": c.whole("topk_group", default=1)}
    if c.only("topk_method", *methods) != "greedy":
        dimensions["mixture_of_experts"] |= groups
    return with_predicted_tokens(c, with_latent_attention(c, dimensions))


def with_latent_attention(c: Config, dimensions: Dimensions) -> Dimensions:
    """Returns dimensions with the latent attention of a configuration."""
    value = c.whole("v_head_dim")
    latent = {
        "kv_rank": c.whole("kv_lora_rank"),
        "q_rank": c.optional("q_lora_rank"),
        "nope_head_dim": c.whole("qk_nope_head_dim"),
        "rope_head_dim": c.whole("qk_rope_head_dim"),
        "value_head_dim": value,
    }
    dimensions = {**dimensions, "kv_heads": None, "head_dim": value, "latent_attention": latent}
    if not c.flag("attention_bias", default=False):
        return dimensions
    # The products that narrow the input have biases, and the one of the outputs.
    biases = (latent["q_rank"] or 0) + latent["kv_rank"] + latent["rope_head_dim"] + dimensions["hidden"]
    return extended(dimensions, layer=biases)


def with_predicted_tokens(c: Config, dimensions: Dimensions) -> Dimensions:
    """Returns dimensions with the modules of multi-token prediction."""
    return {**dimensions, "multi_token_prediction": c.count("num_nextn_predict_layers")}


def minicpm3(c: Config) -> Dimensions:
    """Returns the dimensions of MiniCPM 3, a dense model with latent attention."""
    hidden, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    tied = c.flag("tie_word_embeddings", default=True)
    c.only("mlp_bias", False)
    whole = c.changed(v_head_dim=c.whole("v_head_dim", default=hidden // heads), tie_word_embeddings=tied)
    dense = {**llama_dimensions(whole), "kv_heads": None}
    return extended(with_latent_attention(whole, dense), notes=(MULTIPLIERS,))


def glm4_moe(c: Config) -> Dimensions:
    """Returns the dimensions of GLM-4.5, whose router is that of DeepSeek-V3."""
    dimensions = deepseek(c.changed(attention_bias=False))
    groups = {"groups": c.whole("n_group", default=1), "top_k_groups": c.whole("topk_group", default=1)}
    dimensions["mixture_of_experts"] |= groups
    if c.flag("attention_bias", default=False):
        dimensions = with_attention_biases(dimensions, output=False)
    if c.flag("use_qk_norm", default=False):
        dimensions = extended(dimensions, layer=2 * head_sizes(dimensions)[0])
    # Scores are corrected by a bias of each expert, which is no parameter that is trained.
    return with_predicted_tokens(c, dimensions)


TYPES = {
    "deepseek": deepseek,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v2,
    "glm4_moe": glm4_moe,
    "kimi_k2": deepseek_v2,
    "minicpm3": minicpm3,
}
"""Reader of each model type."""
