"""Selects the part of every sequence that a context-parallel rank trains on."""

from __future__ import annotations

import torch

from wirecost.train.groups import Group
from wirecost.train.models import Batch


def part_of_sequences(batch: Batch, group: Group) -> Batch:
    """Returns a rank's two chunks of every tensor, (batch, sequence / n), and their `positions`, (sequence / n,).

    Args:
        batch: tensors, (batch, sequence).
        group: the context group of n ranks.
    """
    if group.size == 1:
        return batch
    length = batch["inputs"].shape[1]
    chunks = torch.arange(length).chunk(2 * group.size)
    positions = torch.cat([chunks[group.index], chunks[-1 - group.index]])
    return {**{name: tensor[:, positions] for name, tensor in batch.items()}, "positions": positions}
