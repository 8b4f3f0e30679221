"""Names of keys that describe the size of a model, whatever its model type is, and what they say about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from wirecost.spec.huggingface.config import Dimensions, head_sizes

Rule = tuple[re.Pattern[str], Callable[[str, Any, Dimensions], bool]]
"""The names of keys, and whether a value of such a key describes another model than the dimensions do."""

ATTENTION_KINDS = ("full_attention", "sliding_attention", "chunked_attention")
"""Kinds of layers that have attention, with and without a window."""
NO_SIZE = re.compile(
    r".*(dropout|drop_rate|coef|loss|jitter|noise|capacity|correction|token_id|token_index|token_type|dtype|precision|kernel"
    r"_impl|backend|implementation|parallel|initializer|init_std|scaling|scale|eps|norm_topk|rotary|router_logits"
    r"|per_tok|top_?k_prob|renormalize|vision|image|audio|projector|classifier|routing_bias|experts?_bias"
    r"|rout(er|ing)_bias|score_bias|position_bias|relative|rel_).*"
)
"""Names that say that a key changes no size of the text model."""


def _number(value: Any) -> float | None:
    """Returns a number, also one that is written as text, or None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,12}", value):
        return int(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _some(value: Any) -> bool:
    """Returns whether a value is true, a positive number, a list with such an item, or a mapping."""
    if isinstance(value, list):
        return any(map(_some, value))
    number = _number(value)
    return value is True or isinstance(value, dict) or (number is not None and number > 0)


def _is_something(_: str, value: Any, __: Dimensions) -> bool:
    return _some(value)


def _is_list(_: str, value: Any, __: Dimensions) -> bool:
    return isinstance(value, list)


def _none_of(*wanted: Callable[[Dimensions], Any]) -> Callable[[str, Any, Dimensions], bool]:
    """Returns a rule that a number must be one of the dimensions. A list must have it in every place."""

    def differs(_: str, value: Any, dimensions: Dimensions) -> bool:
        right = [number(dimensions) for number in wanted]
        values = value if isinstance(value, list) else [value]
        return any(_some(each) and _number(each) not in right for each in values)

    return differs


def _moe(key: str) -> Callable[[Dimensions], Any]:
    return lambda d: (d.get("mixture_of_experts") or {}).get(key)


def _latent(*keys: str) -> Callable[[Dimensions], Any]:
    return lambda d: sum((d.get("latent_attention") or {}).get(key) or 0 for key in keys)


def _hidden(dimensions: Dimensions) -> Any:
    return dimensions["hidden"]


def _heads(dimensions: Dimensions) -> Any:
    return dimensions["heads"]


def _kv_heads(dimensions: Dimensions) -> Any:
    return dimensions.get("kv_heads") or dimensions["heads"]


def _ffn(dimensions: Dimensions) -> Any:
    return dimensions.get("ffn_hidden") or 4 * dimensions["hidden"]


def _expert_ffn(dimensions: Dimensions) -> Any:
    moe = dimensions.get("mixture_of_experts")
    return (moe.get("expert_ffn_hidden") or _ffn(dimensions)) if moe else None


def _shared_ffn(dimensions: Dimensions) -> Any:
    moe = dimensions.get("mixture_of_experts") or {}
    return (_expert_ffn(dimensions) or 0) * moe.get("shared_experts", 0)


def _of_experts(name: str, value: Any, dimensions: Dimensions) -> bool:
    """Returns whether a key about experts describes others than the dimensions. One expert is an ordinary MLP."""
    moe = dimensions.get("mixture_of_experts") or {}
    if value is True:
        return not moe
    if isinstance(value, str) and _number(value) is None:
        return False
    if re.search(r"size|dim|width|ffn|hidden|inner", name):
        return _none_of(_expert_ffn, _shared_ffn)(name, value, dimensions)
    if isinstance(value, float) and not value.is_integer():
        return False
    known = {1, moe.get("experts")}
    if "shared" in name:
        known = {moe.get("shared_experts", 0)}
    elif re.search(r"top_?k|_k$", name):
        known = {1, moe.get("top_k")}
    elif re.search(r"layer|step|freq|interval|every|period|offset", name):
        known = {1}
    values = value if isinstance(value, list) else [value]
    return any(_some(each) and _number(each) not in known for each in values)


def _of_dense_layers(name: str, value: Any, dimensions: Dimensions) -> bool:
    """Returns whether a key chooses other layers with experts than the dimensions have."""
    moe = dimensions.get("mixture_of_experts")
    if moe is None:
        return False
    if name == "decoder_sparse_step":
        return (_number(value) or 0) > 1
    sparse = moe.get("moe_layers") or dimensions["layers"] - moe.get("dense_layers", 0)
    if name == "mlp_layer_types":
        return isinstance(value, list) and sum(kind == "sparse" for kind in value) != sparse
    return _some(value) if isinstance(value, list) else _number(value) != dimensions["layers"] - sparse


def _of_biases(name: str, value: Any, dimensions: Dimensions) -> bool:
    return isinstance(value, bool) and value is not (bool(dimensions.get("biases", True)) ^ (name == "no_bias"))


def _of_norms(_: str, value: Any, dimensions: Dimensions) -> bool:
    """Returns whether a name of a norm is that of another kind."""
    text = str(value).lower()
    return ("rms" in text) != (dimensions.get("norm") == "rmsnorm") and ("rms" in text or "layer" in text)


def _of_root_mean_squares(_: str, value: Any, dimensions: Dimensions) -> bool:
    return value is True and dimensions.get("norm") != "rmsnorm"


def _of_scores(_: str, value: Any, dimensions: Dimensions) -> bool:
    moe = dimensions.get("mixture_of_experts")
    return moe is not None and isinstance(value, str) and moe.get("scoring", "softmax") not in value.lower()


def _of_groups(name: str, value: Any, dimensions: Dimensions) -> bool:
    moe = dimensions.get("mixture_of_experts")
    known = (moe or {}).get("top_k_groups" if "topk" in name else "groups", 1)
    return moe is not None and (_number(value) or 0) > 1 and _number(value) != known


def _of_queries_per_key(_: str, value: Any, dimensions: Dimensions) -> bool:
    return _number(value) != dimensions["heads"] // _kv_heads(dimensions)


def _one_key_head(_: str, value: Any, dimensions: Dimensions) -> bool:
    return value is True and _kv_heads(dimensions) != 1


def names_other_layers(value: Any) -> bool:
    """Returns whether the value of `layer_types` names layers that have no attention."""
    return isinstance(value, list) and any(kind not in ATTENTION_KINDS for kind in value)


def _encodes_and_decodes(_: str, value: Any, dimensions: Dimensions) -> bool:
    return value is True and dimensions.get("family") != "t5"


LATENT = re.compile(r"(kv|q)_lora_rank|qk_(nope|rope|head)_.*|v_head_dim")
"""Names of keys of latent attention, which `use_mla: false` switches off."""
BIAS = re.compile(r"(.*_)?bias(es)?|(add|use|has|with|enable)_bias(es)?_.*|no_bias")
QK_NORM = re.compile(r"(.*_)?(qk|query_key|q|k)_?(layer_?)?(norm|ln)(alization|s)?(_.*)?")

RULES: tuple[Rule, ...] = (
    (re.compile(r"(.*_)?(scoring|score)_func(tion)?|(.*_)?expert_selection_fn|gating_func(tion)?"), _of_scores),
    (re.compile(r"n_groups?|topk_groups?|num_expert_groups?"), _of_groups),
    (
        re.compile(r"first_k_dense_replace|(num|n|first)_dense_layers|decoder_sparse_step|mlp_(only|layer)_.*"),
        _of_dense_layers,
    ),
    (re.compile(r"(?!.*(selection|policy|group)).*(experts?|moe).*"), _of_experts),
    (re.compile(r"(.*_)?(lora_)?rank|lora_r|time_step_rank"), _none_of(_latent("kv_rank"), _latent("q_rank"))),
    (
        re.compile(r"(.*_)?head_?dims?|kv_channels|d_kv|d_head|dim_head|(attention_)?head_size|size_per_head"),
        _none_of(
            lambda d: head_sizes(d)[0],
            lambda d: d["hidden"] // d["heads"],
            _latent("nope_head_dim", "rope_head_dim"),
            _latent("rope_head_dim"),
        ),
    ),
    (
        re.compile(
            r"(.*_)?(key_value|kv)_(heads|groups_num)|n_head_kv|kv_n_heads|multi_query_group_num"
            r"|num_(query|attention)_groups"
        ),
        _none_of(_kv_heads, _heads),
    ),
    (re.compile(r"num_(key_value|kv)_groups"), _of_queries_per_key),
    (re.compile(r"multi_query(_attention)?"), _one_key_head),
    (QK_NORM, _is_something),
    (
        re.compile(
            r"(.*_)?sandwich_norm|(use_)?post_norm|layernorm_embedding|(.*_)?embed(ding)?_?(layer)?norm"
            r"|emb_layer_norm_before|(attn|attention)_output_gate|(.*_)?(attention|attn)_gate|(.*_)?gated_attention"
        ),
        _is_something,
    ),
    (re.compile(r"norm(alization)?_(type|class)"), _of_norms),
    (re.compile(r"(use_)?rms_?norm"), _of_root_mean_squares),
    (BIAS, _of_biases),
    (
        re.compile(
            r"(mamba|ssm|rwkv|lru|hyena|hybrid|short_?conv|index|indexer|altup|laurel|adapter)_.*|state_size|conv_kernel"
            r"(_size)?|conv_l_cache|linear_(attn|key|value|num|conv|head)_.*|(use_)?mla|loop_.*|(num|n)_.*loops|full_attention_interval|attn_layer_.*"
            r"|layers_block_type|block_(types|configs)|(.*_)?(eagle|dflash|mla|mamba|ssm|kda|mtp)_(config|args)"
        ),
        _is_something,
    ),
    (
        re.compile(
            r"(.*_)?(ffn|ff|mlp|feed_?forward|intermediate)_?(hidden_)?(size|dim|width)s?(_mlp)?|n_inner|d_ff"
            r"|dim_(ff|feedforward)|ffn|hidden_dim|d_inner|inner_(dim|size)"
        ),
        _none_of(_ffn, _hidden, _expert_ffn, _shared_ffn),
    ),
    (re.compile(r"n_layers?|num_(hidden_)?layers"), _none_of(lambda d: d["layers"])),
    (re.compile(r"n_embe?d|d_model|hidden_size"), _none_of(_hidden)),
    (re.compile(r"n_heads?|num_(attention_)?heads|attention_heads"), _none_of(_heads)),
    (re.compile(r"(word_)?emb(ed|edding)?_?(proj_)?(size|dim)"), _none_of(_hidden)),
    (re.compile(r"draft_vocab_size|.*_per_layer_input|(.*_)?ngram_.*size.*|additional_vocab_size"), _is_something),
    (
        re.compile(r"(.*_)?(mtp|nextn|next_n|multi_token)(_.*)?"),
        _none_of(lambda d: d.get("multi_token_prediction")),
    ),
    (
        re.compile(
            r"(add|use)_cross_attention|cross_attention_layers|num_hidden_groups|num_kv_shared_layers|(use_)?cla|hc_mult"
        ),
        _is_something,
    ),
    (re.compile(r"(.*_)?(heads|sizes|dims)_per_layer"), _is_list),
    (re.compile(r"is_encoder_decoder"), _encodes_and_decodes),
)
"""What keys say about the size of a model. A name may match several rules."""
