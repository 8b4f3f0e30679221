"""The recorded collectives that FSDP2 calls in place of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator
from wirecost.train.pending import Pending
from wirecost.train.streams import use_stream


class Sharding(Protocol):
    """The strategy whose collectives these are. See `wirecost.train.parallel.zero3.Zero3`.

    Attributes:
        overlap: whether communication runs during computation.
        replication: sums the gradients of shards over hosts.
        last: whether this is the last micro-batch of the iteration.
    """

    device: torch.device
    overlap: bool
    replication: Communicator
    last: bool

    def computed(self) -> None:
        """Records that backward of a block has been computed."""
        ...

    def waited(self) -> None:
        """Records that a wait of FSDP2 has ended."""
        ...

    def reduced(self) -> None:
        """Records that a reduce-scatter is about to be issued."""
        ...


class _Allocates:
    """Allocates memory for FSDP2, and communicates over a group."""

    def __init__(self, strategy: Sharding, sharding: Communicator) -> None:
        self.strategy = strategy
        self.sharding = sharding
        self.compute = torch.cuda.current_stream() if strategy.device.type == "cuda" else None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class AllGather(_Allocates):
    """A recorded all-gather. Without overlap it begins after the computation that has been issued."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        if self.compute is not None and not self.strategy.overlap:
            torch.cuda.current_stream().wait_stream(self.compute)
        pending = self.sharding.all_gather(output_tensor, input_tensor, asynchronous=async_op)
        return _Work(pending) if async_op else None


class _Work(dist.Work):
    """A recorded collective in the form for which FSDP2 waits."""

    def __init__(self, pending: Pending) -> None:
        super().__init__()
        self.pending = pending

    def wait(self, timeout: object = None) -> bool:
        self.pending.wait()
        return True


class ReduceScatter(_Allocates):
    """A recorded reduce-scatter. Without overlap computation waits for it."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        self.strategy.waited()
        return super().allocate(size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> None:
        self.strategy.reduced()
        # On a GPU this runs on FSDP2's stream, beside the phases.
        phase = None if self.compute is not None else Phase.GRAD_SYNC
        self.sharding.reduce_scatter(output_tensor, input_tensor, phase=phase)
        if self.compute is not None and not self.strategy.overlap:
            reducing = torch.cuda.current_stream()
            with use_stream(self.compute):
                self.strategy.computed()
                self.compute.wait_stream(reducing)
                self.strategy.waited()


class Replication:
    """The all-reduce of hybrid sharding. Gradients of shards are summed over micro-batches, and then over the
    hosts."""

    def __init__(self, strategy: Sharding) -> None:
        self.strategy = strategy
        self.partial: torch.Tensor | None = None

    def __call__(self, shard: torch.Tensor) -> None:
        if shard.device.type == "cuda":
            shard.record_stream(torch.cuda.current_stream())
        if not self.strategy.last:
            if self.partial is None:
                self.partial = torch.zeros_like(shard)
            self.partial.add_(shard)
            shard.zero_()
            return
        if self.partial is not None:
            shard.add_(self.partial)
            self.partial.zero_()
        phase = None if shard.device.type == "cuda" else Phase.GRAD_SYNC
        self.strategy.replication.all_reduce(shard, phase=phase)
