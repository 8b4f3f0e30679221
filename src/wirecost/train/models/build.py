"""The model of a workload."""

from __future__ import annotations

from torch import nn

from wirecost.errors import SpecError
from wirecost.spec import Family, Workload
from wirecost.train.models.gpt import GPT


def build_model(workload: Workload) -> nn.Module:
    """A freshly initialised model: token ids (batch, sequence + 1) in, mean loss out.

    Raises:
        SpecError: for a family, or a variant of it, that the engine does not train.
    """
    if reason := untrainable(workload):
        raise SpecError(reason)
    return GPT(workload)


def untrainable(workload: Workload) -> str | None:
    """Why the engine can't train a workload, or None."""
    if workload.family is not Family.GPT:
        return f"workload '{workload.name}': the engine trains family gpt, not {workload.family}"
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
