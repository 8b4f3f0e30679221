"""What every model is to the engine: a list of units, so that a pipeline may cut it anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

Batch = Mapping[str, torch.Tensor]
"""One micro-batch by name: `inputs`, `targets` and whatever else the family's units look for. Every tensor's
first dimension is the sequences; but for `positions`, (sequence), where a rank has a part of each sequence."""

State = tuple[torch.Tensor, ...]
"""What one unit hands to the next: activations (batch, sequence, hidden)."""


class Unit(nn.Module):
    """A step of a model: `forward(state, batch)` gives the next state; the last unit's state is the mean loss.

    The first unit's state is empty. A parameter that several units share (a tied embedding) is the same object
    in each.

    `layers` is how many of the workload's layers the unit is: pipelines share those out.
    """

    layers = 0

    def forward(self, state: State, batch: Batch) -> State:
        raise NotImplementedError


class Model(nn.Module):
    """Units one after another: a batch in, the mean loss (a scalar) out."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__()
        self.units = nn.ModuleList(units)

    def forward(self, batch: Batch) -> torch.Tensor:
        state = run_units(self.units, (), batch)
        return state[0]


def run_units(units: Iterable[nn.Module], state: State, batch: Batch) -> State:
    """Lets `units` run one after another."""
    for unit in units:
        state = unit(state, batch)
    return state
