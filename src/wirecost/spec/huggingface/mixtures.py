"""Further mixtures of experts, most of them like DeepSeek-V3 or Qwen 3 with other keys, norms or windows."""

from __future__ import annotations

from wirecost.spec.huggingface.config import Config, Dimensions, extended, head_sizes, with_norms, with_window
from wirecost.spec.huggingface.deepseek import deepseek_v2, glm4_moe, with_predicted_tokens
from wirecost.spec.huggingface.dense import with_sinks
from wirecost.spec.huggingface.experts import granitemoe, olmoe, router_loss, with_shared
from wirecost.spec.huggingface.llama_like import cohere, decoder, exaone4
from wirecost.spec.huggingface.qwen import qwen3_moe


def with_dense_layers(c: Config, dimensions: Dimensions) -> Dimensions:
    """Returns dimensions with experts in the layers that `mlp_layer_types` names, or else in all but the first
    `first_k_dense_replace`.

    Raises:
        ValueError: if no layer has experts.
    """
    layers = dimensions["layers"]
    first = c.count("first_k_dense_replace")
    kinds = c.of_layers("mlp_layer_types", layers, "sparse", "dense")
    dense = sum(kind != "sparse" for kind in kinds) if kinds else min(first, layers)
    if dense >= layers:
        raise ValueError(
            f"{c.where}{'mlp_layer_types' if kinds else 'first_k_dense_replace'}: no layer has experts"
        )
    moe = {key: value for key, value in dimensions["mixture_of_experts"].items() if key != "dense_layers"}
    at_first = all(kind != "sparse" for kind in kinds[:dense])
    place = {"dense_layers": dense} if at_first else {"moe_layers": layers - dense}
    return {**dimensions, "mixture_of_experts": {**moe, **(place if dense else {})}}


def hy_v3(c: Config) -> Dimensions:
    """Returns the dimensions of Hy3, whose queries and keys are normalised in each head."""
    c.only("mlp_bias", False)
    c.only("qk_norm", True)
    width = c.whole("moe_intermediate_size", "expert_hidden_dim")
    dimensions = decoder(c)
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("num_experts", "num_local_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn_hidden": width,
        "shared_experts": c.count("num_shared_experts"),
        "scoring": "sigmoid",
        "scaling": c.number("router_scaling_factor", default=1.0),
        "aux_loss": router_loss(c),
    }
    dimensions = extended(with_predicted_tokens(c, dimensions), layer=2 * head_sizes(dimensions)[0])
    return with_dense_layers(c, dimensions)


def solar_open(c: Config) -> Dimensions:
    """Returns the dimensions of Solar Open, which has experts in every layer."""
    c.only("use_qk_norm", False)
    width = c.get("intermediate_size") or c.get("moe_intermediate_size")
    return glm4_moe(c.changed(intermediate_size=width))


def sarvam_moe(c: Config) -> Dimensions:
    """Returns the dimensions of Sarvam-30B, whose queries and keys are normalised in each head."""
    return glm4_moe(
        _like_deepseek(c).changed(
            attention_bias=c.flag("attention_bias", default=c.flag("use_qkv_bias", default=False)),
            use_qk_norm=c.flag("use_qk_norm", default=True),
        )
    )


def sarvam_mla(c: Config) -> Dimensions:
    """Returns the dimensions of Sarvam-105B, with latent attention."""
    c.get("head_dim")  # holds the width of the cache
    return deepseek_v2(_like_deepseek(c).changed(head_dim=None))


def _like_deepseek(c: Config) -> Config:
    """Returns a configuration under the names of DeepSeek, which Sarvam's first files don't have."""
    return c.changed(
        n_routed_experts=c.whole("n_routed_experts", "num_experts", "num_local_experts"),
        n_shared_experts=c.get("n_shared_experts" if c.has("n_shared_experts") else "num_shared_experts"),
        num_nextn_predict_layers=c.count(
            "num_nextn_predict_layers" if c.has("num_nextn_predict_layers") else "num_mtp_layers"
        ),
        scoring_func=c.get("scoring_func") or c.get("score_function"),
    )


def glm4_moe_lite(c: Config) -> Dimensions:
    """Returns the dimensions of GLM-4.7-Flash: DeepSeek-V3's attention and experts."""
    return with_dense_layers(c, deepseek_v2(c))


def mistral4(c: Config) -> Dimensions:
    """Returns the dimensions of Mistral Small 4: DeepSeek's attention and experts, chosen by a softmax."""
    return deepseek_v2(c.changed(norm_topk_prob=c.flag("norm_topk_prob", default=True)))


def axk1(c: Config) -> Dimensions:
    """Returns the dimensions of A.X K1: a DeepSeek-V3 with a norm behind the experts."""
    dimensions = glm4_moe_lite(c)
    moe = dimensions["mixture_of_experts"]
    sparse = moe.get("moe_layers") or dimensions["layers"] - moe.get("dense_layers", 0)
    return extended(dimensions, model=sparse * dimensions["hidden"])


def exaone_moe(c: Config) -> Dimensions:
    """Returns the dimensions of K-EXAONE: an EXAONE 4 with experts, one of them shared."""
    dimensions = exaone4(c)
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("num_experts", "num_local_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn_hidden": c.whole("moe_intermediate_size"),
        "shared_experts": c.count("num_shared_experts"),
        "scoring": c.only("scoring_func", "sigmoid"),
        "normalised": c.flag("norm_topk_prob", default=True),
        "scaling": c.number("routed_scaling_factor", default=2.5),
        "groups": c.whole("n_group", default=1),
        "top_k_groups": c.whole("topk_group", default=1),
    }
    # The names of the first published file.
    sparse_layers = c.of_layers("is_moe_layer", dimensions["layers"], True, False)
    listed = ["sparse" if sparse else "dense" for sparse in sparse_layers]
    first = c.get("first_k_dense_replace" if c.has("first_k_dense_replace") else "first_last_k_dense_replace")
    named = c.changed(mlp_layer_types=c.get("mlp_layer_types") or listed, first_k_dense_replace=first)
    return with_dense_layers(named, with_predicted_tokens(c, dimensions))


def cohere2_moe(c: Config) -> Dimensions:
    """Returns the dimensions of Cohere's mixture of experts, in the blocks of Command-R7B."""
    dimensions = cohere(c)
    width = dimensions["ffn_hidden"]
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("num_experts", "num_local_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn_hidden": width,
        "shared_experts": c.count("num_shared_experts"),
        "scoring": c.only("expert_selection_fn", "softmax", "sigmoid"),
        "normalised": c.flag("norm_topk_prob", default=True),
        "aux_loss": router_loss(c),
    }
    dimensions["ffn_hidden"] = c.whole("prefix_dense_intermediate_size", default=width)
    first = min(c.count("first_k_dense_replace"), dimensions["layers"])
    full = first // c.whole("prefix_dense_sliding_window_pattern", default=1)
    full += (dimensions["layers"] - first) // c.whole("sliding_window_pattern", default=4)
    return with_dense_layers(c, with_window(c, dimensions, full=full))


def mellum(c: Config) -> Dimensions:
    """Returns the dimensions of Mellum 2: a Qwen 3 with a window in the layers that `layer_types` names."""
    width = c.get("intermediate_size") or c.get("moe_intermediate_size")
    dimensions = qwen3_moe(c.changed(intermediate_size=width))
    dimensions = with_window(c, dimensions, full=dimensions["layers"])
    return with_dense_layers(c, {**dimensions, "multi_token_prediction": c.count("num_mtp_layers")})


def kolibri1(c: Config) -> Dimensions:
    """Returns the dimensions of Kolibri: four norms in each layer, a shared expert, a window in four of five
    layers."""
    c.only("attention_bias", False)
    shared = c.whole("shared_expert_intermediate_size")
    dimensions = with_shared(qwen3_moe(c.changed(intermediate_size=c.get("moe_intermediate_size"))), shared)
    dimensions = with_norms(dimensions, layer=4)
    return with_window(c, dimensions, full=dimensions["layers"] // 5)


def flint(c: Config) -> Dimensions:
    """Returns the dimensions of Flint: a Qwen 3 with a shared expert, attention sinks and windows."""
    dense = c.items("mlp_only_layers") if c.get("mlp_only_layers") is not None else [0, 1]
    dimensions = qwen3_moe(c.changed(mlp_only_layers=dense))
    dimensions = with_sinks(with_shared(dimensions, c.whole("shared_expert_intermediate_size")))
    layers = min(dimensions["layers"], 10_000)
    full = sum(layer < 2 or layer % 4 == 1 or layer == layers - 1 for layer in range(layers))
    return with_window(c, dimensions, full=full)


def granitemoe_swa(c: Config) -> Dimensions:
    """Returns the dimensions of Granite's mixture of experts with windows and attention sinks."""
    return with_sinks(with_window(c, granitemoe(c), full=-(-c.whole("num_hidden_layers") // 4)))


def aria(c: Config) -> Dimensions:
    """Returns the dimensions of the text part of Aria, whose shared experts are as wide as the others."""
    c.only("mlp_bias", False)
    dimensions = decoder(c)
    dimensions["mixture_of_experts"] = {
        "experts": c.whole("moe_num_experts"),
        "top_k": c.whole("moe_topk"),
        "shared_experts": c.count("moe_num_shared_experts"),
    }
    return dimensions


TYPES = {
    "aria_text": aria,
    "axk1": axk1,
    "cohere2_moe": cohere2_moe,
    "exaone_moe": exaone_moe,
    "flex_olmo": olmoe,
    "flint": flint,
    "glm4_moe_lite": glm4_moe_lite,
    "granitemoe_swa": granitemoe_swa,
    "hy_v3": hy_v3,
    "kolibri1": kolibri1,
    "mellum": mellum,
    "mistral4": mistral4,
    "sarvam_mla": sarvam_mla,
    "sarvam_moe": sarvam_moe,
    "solar_open": solar_open,
}
"""Reader of each model type."""
