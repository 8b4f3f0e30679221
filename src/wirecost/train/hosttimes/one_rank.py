"""Collectives of one rank in place of those of a group that doesn't exist."""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist


class OneRank:
    """The functions of `torch.distributed` that the engine's collectives use, over a group of this rank alone.

    A call costs the host what PyTorch and NCCL do for it, except for the launch of NCCL's kernel. It copies this
    rank's part at most.
    """

    def __init__(self, device: torch.device) -> None:
        store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
        self.group = dist.ProcessGroup(store, 0, 1)
        if device.type == "cuda":
            backend: Any = dist.ProcessGroupNCCL(store, 0, 1, dist.ProcessGroupNCCL.Options())
            kind = dist.ProcessGroup.BackendType.NCCL
        else:
            backend = dist.ProcessGroupGloo(store, 0, 1, datetime.timedelta(minutes=1))
            kind = dist.ProcessGroup.BackendType.GLOO
        self.group._set_default_backend(kind)
        self.group._register_backend(device, kind, backend)

    def all_reduce(self, tensor: torch.Tensor, op: Any, _: object, async_op: bool = False) -> Any:
        return dist.all_reduce(tensor, op, self.group, async_op)

    def all_gather_into_tensor(
        self, output: torch.Tensor, shard: torch.Tensor, _: object, async_op: bool = False
    ) -> Any:
        part = output.view(-1)[: shard.numel()]
        return dist.all_gather_into_tensor(part, shard.view(-1), self.group, async_op)

    def reduce_scatter_tensor(
        self, shard: torch.Tensor, full: torch.Tensor, op: Any, _: object, async_op: bool = False
    ) -> Any:
        part = full.view(-1)[: shard.numel()]
        return dist.reduce_scatter_tensor(shard.view(-1), part, op, self.group, async_op)
