"""The form of every model: a list of units, between which a pipeline can split it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import torch
from torch import nn

Batch = Mapping[str, torch.Tensor]
"""The tensors of one micro-batch by name: `inputs`, `targets` and others that the family's units need.

The first dimension of every tensor is the batch. The exception is `positions`, (sequence,), which exists if a
rank has only a part of each sequence.
"""

State = tuple[torch.Tensor, ...]
"""The tensors that one unit passes to the next: activations, (batch, sequence, hidden)."""


P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function that `torch.compile` doesn't trace, because it communicates or depends on routed
    numbers of tokens."""
    return torch.compiler.disable(function)  # type: ignore[return-value]


class Unit(nn.Module):
    """A step of a model. A parameter that several units share, as a tied embedding, is the same object in each.

    Attributes:
        layers: number of the workload's layers in the unit. Pipelines divide these among the stages.
    """

    layers = 0

    def forward(self, state: State, batch: Batch) -> State:
        """Returns the next state. The first unit's input is an empty state, and the last unit returns the mean
        loss."""
        raise NotImplementedError


class Model(nn.Module):
    """A sequence of units. `forward` returns the mean loss of a micro-batch, a scalar."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__()
        self.units = nn.ModuleList(units)

    def forward(self, batch: Batch) -> torch.Tensor:
        state = run_units(self.units, (), batch)
        return state[0]


def run_units(units: Iterable[nn.Module], state: State, batch: Batch) -> State:
    """Runs units one after another, and returns the last state."""
    for unit in units:
        state = unit(state, batch)
    return state
