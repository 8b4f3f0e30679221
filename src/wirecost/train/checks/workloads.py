"""Checks whether the engine can train a workload: the variants of each family, and what each of them needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wirecost.spec import Family, Workload
from wirecost.train.texts import spans

SHORTEST_BERT = 5


def _check_grouped_attention(workload: Workload) -> str | None:
    if workload.key_value_heads != workload.heads:
        return "grouped-query attention can't be trained here; leave kv_heads out"
    return None


def _check_heads(workload: Workload) -> str | None:
    if workload.heads * workload.head_size != workload.hidden:
        return f"head_dim {workload.head_size} can't be trained here; leave it out"
    return _check_grouped_attention(workload)


def _check_bert(workload: Workload) -> str | None:
    if workload.sequence_length < SHORTEST_BERT:
        return f"sequence_length {workload.sequence_length} is too short for two halves; at least {SHORTEST_BERT}"
    return _check_heads(workload)


def _check_t5(workload: Workload) -> str | None:
    count = spans(workload)
    if workload.decoder_sequence < 2 or workload.sequence_length < 2 * count:
        return (
            f"{workload.sequence_length} tokens for the encoder and {workload.decoder_sequence} for the decoder "
            f"are too few to cut spans out; at least {2 * count} and 2"
        )
    return _check_grouped_attention(workload)


def _check_rotary(workload: Workload) -> str | None:
    if workload.latent_attention is not None:
        if workload.latent_attention.rope_head_dim % 2:
            size = workload.latent_attention.rope_head_dim
            return f"rotary positions need an even latent_attention.rope_head_dim, not {size}"
    elif workload.head_size % 2:
        return f"rotary positions need an even head_dim, not {workload.head_size}"
    moe = workload.mixture_of_experts
    if moe is not None and moe.dense_layers > workload.layers:
        return f"mixture_of_experts.dense_layers {moe.dense_layers} is more than layers {workload.layers}"
    return None


def _check_attention(workload: Workload) -> str | None:
    if workload.parallel_block:
        return "parallel_block can't be trained here; leave it out"
    if workload.multi_token_prediction:
        return "multi_token_prediction can't be trained here; leave it out (predictions take it)"
    window = workload.sliding_window
    if window is not None and window < workload.sequence_length:
        return (
            f"a sliding_window of {window} tokens can't be trained here; leave it out, or set sequence_length to "
            f"{window} at most"
        )
    moe = workload.mixture_of_experts
    if moe is not None and moe.moe_layers is not None and moe.moe_layers != workload.layers - moe.dense_layers:
        return "mixture_of_experts.moe_layers can't be trained here; only the first dense_layers have one MLP"
    return None


@dataclass(frozen=True)
class Variant:
    """A model that the engine trains.

    Attributes:
        needs: the values that fields of a workload must have.
        check: returns why a workload with these values can't be trained, or None if it can.
    """

    name: str
    needs: Mapping[str, object]
    check: Callable[[Workload], str | None]


CLASSIC = {"activation": "gelu", "norm": "layernorm", "positions": "learned"}
VARIANTS: dict[Family, list[Variant]] = {
    Family.GPT: [
        Variant("gpt", {**CLASSIC, "tied_embeddings": True}, _check_heads),
        Variant(
            "llama",
            {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "biases": False},
            _check_rotary,
        ),
    ],
    Family.BERT: [Variant("bert", {**CLASSIC, "biases": True, "tied_embeddings": True}, _check_bert)],
    Family.T5: [
        Variant(
            "t5",
            {
                "activation": "relu",
                "norm": "rmsnorm",
                "positions": "relative",
                "biases": False,
                "tied_embeddings": True,
            },
            _check_t5,
        )
    ],
}


def check_workload(workload: Workload) -> str | None:
    """Returns why the engine can't train a workload, or None if it can."""
    variant = variant_of(workload)
    for key in ("mixture_of_experts", "latent_attention"):
        if getattr(workload, key) and variant.name != "llama":
            return (
                f"workload '{workload.name}': {key} can be trained in a Llama only (family gpt, activation "
                "swiglu, norm rmsnorm, positions rotary, biases false)"
            )
    if reason := _check_attention(workload):
        return f"workload '{workload.name}': {reason}"
    if mismatches := _mismatches(workload, variant):
        key = mismatches[0]
        value, trained = getattr(workload, key), variant.needs[key]
        return f"workload '{workload.name}': {key} '{value}' can't be trained here; only '{trained}' can"
    if reason := variant.check(workload):
        return f"workload '{workload.name}': {reason}"
    return None


def variant_of(workload: Workload) -> Variant:
    """Returns the variant of the workload's family that differs from it in the fewest fields."""
    return min(VARIANTS[workload.family], key=lambda v: len(_mismatches(workload, v)))


def _mismatches(workload: Workload, variant: Variant) -> list[str]:
    return [key for key, needed in variant.needs.items() if getattr(workload, key) != needed]
