"""Shards of parameters, and the attributes that mark them.

A sharded parameter has the attributes `tensor_dim`, the dimension along which it is split, and `tensor_size`,
the size of the whole parameter in that dimension. A parameter that every rank holds whole has the attribute
`tensor_partial` if each rank has only a part of its gradient (sequence parallelism).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from wirecost.train.groups import Group


class Shards:
    """Splits parameters. A parameter that several modules share is split once."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._shards: dict[torch.Tensor, nn.Parameter] = {}

    def shard(self, parameter: torch.Tensor, dim: int) -> nn.Parameter:
        """Returns this rank's shard of a parameter along dimension `dim`.

        If the size doesn't divide by the number of ranks, the last shards are padded with zeros.
        """
        if parameter not in self._shards:
            size = parameter.shape[dim]
            shard_size = -(-size // self.group.size)
            start = min(self.group.index * shard_size, size)
            part = parameter.detach().narrow(dim, start, min(shard_size, size - start))
            missing = shard_size - part.shape[dim]
            padded = functional.pad(part, [0, 0] * (parameter.dim() - 1 - dim) + [0, missing])
            shard = nn.Parameter(padded.clone(memory_format=torch.contiguous_format))
            vars(shard).update(tensor_dim=dim, tensor_size=size)
            self._shards[parameter] = shard
        return self._shards[parameter]


def whole_parameter(shard: torch.Tensor, tags: torch.Tensor, group: Group) -> torch.Tensor:
    """Returns a whole parameter. Every rank of the tensor group calls it, outside an iteration.

    Args:
        shard: this rank's values.
        tags: the parameter with the attributes that describe the split.
    """
    dim: int | None = getattr(tags, "tensor_dim", None)
    if dim is None or group.size == 1:
        return shard
    parts = [torch.empty_like(shard, memory_format=torch.contiguous_format) for _ in group.ranks]
    torch.distributed.all_gather(parts, shard.contiguous(), group=group.process_group)
    return torch.cat(parts, dim).narrow(dim, 0, vars(tags)["tensor_size"])


def mark_partial(*parameters: torch.Tensor | None) -> None:
    """Marks parameters of whose gradients each rank has a part."""
    for parameter in parameters:
        if parameter is not None:
            vars(parameter)["tensor_partial"] = True
