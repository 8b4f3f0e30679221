"""The model of a workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from wirecost.errors import SpecError
from wirecost.spec import Family, Workload
from wirecost.train.models.base import Model
from wirecost.train.models.gpt import GPTExamples, gpt


class Examples(Protocol):
    """Turns running text into a family's micro-batches."""

    length: int  # tokens of text for one sequence

    def batch(self, rows: np.ndarray, draws: list[np.random.Generator]) -> dict[str, torch.Tensor]:
        """Args:
        rows: token ids, (sequences, length).
        draws: randomness for each sequence (masks), the same wherever the sequence is trained on.
        """
        ...


FAMILIES: dict[Family, tuple[Callable[[Workload], Model], Callable[[Workload], Examples]]] = {
    Family.GPT: (gpt, GPTExamples),
}


def build_model(workload: Workload) -> Model:
    """A freshly initialised model.

    Raises:
        SpecError: for a family, or a variant of it, that the engine does not train.
    """
    if reason := untrainable(workload):
        raise SpecError(reason)
    return FAMILIES[workload.family][0](workload)


def examples_for(workload: Workload) -> Examples:
    """What makes the workload's micro-batches."""
    return FAMILIES[workload.family][1](workload)


def untrainable(workload: Workload) -> str | None:
    """Why the engine can't train a workload, or None."""
    if workload.family not in FAMILIES:
        return (
            f"workload '{workload.name}': the engine trains family {' or '.join(sorted(FAMILIES))}, "
            f"not {workload.family}"
        )
    if workload.mixture_of_experts:
        return f"workload '{workload.name}': the engine trains no mixture of experts"
    plain = {
        "activation": "gelu",
        "norm": "layernorm",
        "positions": "learned",
        "biases": True,
        "tied_embeddings": True,
    }
    for key, trained in plain.items():
        if (given := getattr(workload, key)) != trained:
            return f"workload '{workload.name}': {key} '{given}' can't be trained; only '{trained}' can"
    if workload.key_value_heads != workload.heads:
        return f"workload '{workload.name}': grouped-query attention can't be trained; leave kv_heads out"
    return None
