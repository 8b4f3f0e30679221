"""Which part of every sequence a context-parallel rank trains on."""

from __future__ import annotations

import torch

from wirecost.train.groups import Group
from wirecost.train.models import Batch


def part_of_sequences(batch: Batch, group: Group) -> Batch:
    """What a rank of the context group trains on: its two chunks of every tensor (batch, sequence), and their
    `positions` (sequence / n)."""
    if group.size == 1:
        return batch
    length = batch["inputs"].shape[1]
    chunks = torch.arange(length).chunk(2 * group.size)
    positions = torch.cat([chunks[group.index], chunks[-1 - group.index]])
    return {**{name: tensor[:, positions] for name, tensor in batch.items()}, "positions": positions}
