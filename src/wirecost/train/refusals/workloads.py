"""Workloads that the engine can't train: each family's variants, what each needs, and why another can't be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wirecost.spec import Family, Workload
from wirecost.train.texts import spans

SHORTEST_BERT = 5


def _no_grouped_attention(workload: Workload) -> str | None:
    if workload.key_value_heads != workload.heads:
        return "grouped-query attention can't be trained here; leave kv_heads out"
    return None


def _heads_of_hidden(workload: Workload) -> str | None:
    if workload.heads * workload.head_size != workload.hidden:
        return f"head_dim {workload.head_size} can't be trained here; leave it out"
    return _no_grouped_attention(workload)


def _short_for_bert(workload: Workload) -> str | None:
    if workload.sequence_length < SHORTEST_BERT:
        return f"sequence_length {workload.sequence_length} holds no two halves; at least {SHORTEST_BERT} does"
    return _heads_of_hidden(workload)


def _short_for_t5(workload: Workload) -> str | None:
    cut = spans(workload)
    if workload.decoder_sequence < 2 or workload.sequence_length < 2 * cut:
        return (
            f"{workload.sequence_length} tokens for the encoder and {workload.decoder_sequence} for the decoder "
            f"are too few to cut spans out; at least {2 * cut} and 2"
        )
    return _no_grouped_attention(workload)


def _rotates(workload: Workload) -> str | None:
    if workload.head_size % 2:
        return f"rotary positions turn pairs: head_dim {workload.head_size} is odd"
    return None


@dataclass(frozen=True)
class Variant:
    """A model that the engine trains: what a workload of its family must be, and why another can't be trained."""

    name: str
    needs: Mapping[str, object]
    refuses: Callable[[Workload], str | None]


CLASSIC = {"activation": "gelu", "norm": "layernorm", "positions": "learned"}
VARIANTS: dict[Family, list[Variant]] = {
    Family.GPT: [
        Variant("gpt", {**CLASSIC, "tied_embeddings": True}, _heads_of_hidden),
        Variant(
            "llama", {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "biases": False}, _rotates
        ),
    ],
    Family.BERT: [Variant("bert", {**CLASSIC, "biases": True, "tied_embeddings": True}, _short_for_bert)],
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
            _short_for_t5,
        )
    ],
}


def untrainable(workload: Workload) -> str | None:
    """Why the engine can't train a workload, or None."""
    if workload.mixture_of_experts:
        return f"workload '{workload.name}': the engine trains no mixture of experts"
    variant = variant_of(workload)
    if wrong := _mismatches(workload, variant):
        key = wrong[0]
        given, trained = getattr(workload, key), variant.needs[key]
        return f"workload '{workload.name}': {key} '{given}' can't be trained here; only '{trained}' can"
    if reason := variant.refuses(workload):
        return f"workload '{workload.name}': {reason}"
    return None


def variant_of(workload: Workload) -> Variant:
    """The variant of the workload's family that it is, or is nearest to."""
    return min(VARIANTS[workload.family], key=lambda v: len(_mismatches(workload, v)))


def _mismatches(workload: Workload, variant: Variant) -> list[str]:
    return [key for key, needed in variant.needs.items() if getattr(workload, key) != needed]
