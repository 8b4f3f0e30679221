"""Shards of parameters, and how they are told from whole ones.

A sharded parameter has the attributes `tensor_dim`, the dimension along which the ranks' shards follow one
another, and `tensor_size`, the whole one's size there. A parameter that every rank holds whole, but whose gradient
each has a part of (sequence parallelism), has `tensor_partial`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from wirecost.train.groups import Group


class Shards:
    """Cuts parameters; one that several modules share is cut once."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._made: dict[torch.Tensor, nn.Parameter] = {}

    def of(self, parameter: torch.Tensor, dim: int) -> nn.Parameter:
        """This rank's shard; where the size doesn't divide, the last ones are padded with zeros."""
        if parameter not in self._made:
            size = parameter.shape[dim]
            each = -(-size // self.group.size)
            start = min(self.group.index * each, size)
            part = parameter.detach().narrow(dim, start, min(each, size - start))
            missing = each - part.shape[dim]
            padded = functional.pad(part, [0, 0] * (parameter.dim() - 1 - dim) + [0, missing])
            shard = nn.Parameter(padded.clone(memory_format=torch.contiguous_format))
            vars(shard).update(tensor_dim=dim, tensor_size=size)
            self._made[parameter] = shard
        return self._made[parameter]


def whole_parameter(shard: torch.Tensor, tags: torch.Tensor, group: Group) -> torch.Tensor:
    """The whole of a parameter with the attributes of `tags`; to be called by every rank of the tensor group,
    outside an iteration."""
    dim: int | None = getattr(tags, "tensor_dim", None)
    if dim is None or group.size == 1:
        return shard
    parts = [torch.empty_like(shard, memory_format=torch.contiguous_format) for _ in group.ranks]
    torch.distributed.all_gather(parts, shard.contiguous(), group=group.process_group)
    return torch.cat(parts, dim).narrow(dim, 0, vars(tags)["tensor_size"])


def mark_partial(*parameters: torch.Tensor | None) -> None:
    for parameter in parameters:
        if parameter is not None:
            vars(parameter)["tensor_partial"] = True
