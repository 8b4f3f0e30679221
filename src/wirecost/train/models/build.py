"""The model of a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from wirecost.errors import SpecError
from wirecost.spec import Family, Workload
from wirecost.train.models.base import Model
from wirecost.train.models.bert import bert
from wirecost.train.models.bert_examples import BERTExamples
from wirecost.train.models.gpt import GPTExamples, gpt
from wirecost.train.models.llama import llama
from wirecost.train.models.t5 import t5
from wirecost.train.models.t5_examples import T5Examples, spans


class Examples(Protocol):
    """Turns running text into a family's micro-batches."""

    length: int  # tokens of text for one sequence

    def batch(self, rows: np.ndarray, draws: list[np.random.Generator]) -> dict[str, torch.Tensor]:
        """Args:
        rows: token ids, (sequences, length).
        draws: randomness for each sequence (masks), the same wherever the sequence is trained on.
        """
        ...


@dataclass(frozen=True)
class Variant:
    """A model that the engine trains: what a workload of its family must be, and why another can't be trained."""

    build: Callable[[Workload], Model]
    examples: Callable[[Workload], Examples]
    needs: Mapping[str, object]
    refuses: Callable[[Workload], str | None] = lambda _: None


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


SHORTEST_BERT = 5

CLASSIC = {"activation": "gelu", "norm": "layernorm", "positions": "learned"}
VARIANTS: dict[Family, list[Variant]] = {
    Family.GPT: [
        Variant(gpt, GPTExamples, {**CLASSIC, "tied_embeddings": True}, _heads_of_hidden),
        Variant(
            llama,
            GPTExamples,
            {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "biases": False},
            _rotates,
        ),
    ],
    Family.BERT: [
        Variant(bert, BERTExamples, {**CLASSIC, "biases": True, "tied_embeddings": True}, _short_for_bert)
    ],
    Family.T5: [
        Variant(
            t5,
            T5Examples,
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


def build_model(workload: Workload) -> Model:
    """A freshly initialised model.

    Raises:
        SpecError: for a family, or a variant of it, that the engine does not train.
    """
    if reason := untrainable(workload):
        raise SpecError(reason)
    return _variant(workload).build(workload)


def examples_for(workload: Workload) -> Examples:
    """What makes the workload's micro-batches."""
    return _variant(workload).examples(workload)


def untrainable(workload: Workload) -> str | None:
    """Why the engine can't train a workload, or None."""
    if workload.mixture_of_experts:
        return f"workload '{workload.name}': the engine trains no mixture of experts"
    variant = _variant(workload)
    if wrong := _mismatches(workload, variant):
        key = wrong[0]
        given, trained = getattr(workload, key), variant.needs[key]
        return f"workload '{workload.name}': {key} '{given}' can't be trained here; only '{trained}' can"
    if reason := variant.refuses(workload):
        return f"workload '{workload.name}': {reason}"
    return None


def _variant(workload: Workload) -> Variant:
    """The variant of the workload's family that it is, or is nearest to."""
    return min(VARIANTS[workload.family], key=lambda v: len(_mismatches(workload, v)))


def _mismatches(workload: Workload, variant: Variant) -> list[str]:
    return [key for key, needed in variant.needs.items() if getattr(workload, key) != needed]
