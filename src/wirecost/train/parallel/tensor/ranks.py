"""The communication of tensor-parallel ranks: sums, and with sequence parallelism gathers and scatters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator
from wirecost.train.parallel.base import uncompiled
from wirecost.train.pending import Pending, wait_all

PHASE = Phase.TENSOR_PARALLEL


@dataclass(frozen=True)
class TensorRanks:
    """The tensor group.

    Attributes:
        sequence: whether each rank has only a slice of the positions between the parallel parts.
        overlap: whether a linear's communication in backward runs while its other gradient is computed.
        by_batch: whether a slice has whole sequences, (batch / n, sequence, hidden), in one piece of memory, as
            collectives need it. Otherwise it is (batch, sequence / n, hidden), which is copied before and after
            each collective, unless the batch is 1.
    """

    communicator: Communicator
    sequence: bool
    overlap: bool
    by_batch: bool = False

    @property
    def size(self) -> int:
        return self.communicator.size

    @property
    def index(self) -> int:
        return self.communicator.group.index

    def sum(self, x: torch.Tensor, *, asynchronous: bool = False) -> Pending:
        """Sums `x` over the ranks, in place."""
        return self.communicator.all_reduce(x, phase=PHASE, asynchronous=asynchronous)

    def maximum(self, x: torch.Tensor) -> None:
        """Takes the maximum of `x` over the ranks, in place."""
        self.communicator.all_reduce(x, op=dist.ReduceOp.MAX, phase=PHASE)

    def gather(self, x: torch.Tensor, *, asynchronous: bool = False) -> tuple[torch.Tensor, Pending]:
        """Gathers the ranks' slices.

        Returns:
            The slices, (n, *slice), which `whole` puts in order after the gather has ended.
        """
        spread = x.new_empty((self.size, *x.shape))
        return spread, self.communicator.all_gather(
            spread.view(-1), x.contiguous().view(-1), phase=PHASE, asynchronous=asynchronous
        )

    def whole(self, spread: torch.Tensor) -> torch.Tensor:
        """Returns slices, (n, *slice), as (batch, sequence, ...)."""
        if self.by_batch:
            return spread.flatten(0, 1)
        return spread.transpose(0, 1).flatten(1, 2)

    def in_order(self, part: torch.Tensor) -> bool:
        """Returns whether slices like `part`, (batch, sequence, ...), are in order as they are gathered, without
        a copy in `whole`."""
        return self.by_batch or len(part) == 1

    def scatter_sum(self, x: torch.Tensor, *, asynchronous: bool = False) -> tuple[torch.Tensor, Pending]:
        """Returns this rank's slice of the sum of `x`, (batch, sequence, ...). It is valid after the
        reduce-scatter."""
        if self.by_batch:
            spread = x.unflatten(0, (self.size, -1)).contiguous()
        else:
            spread = x.unflatten(1, (self.size, -1)).transpose(0, 1).contiguous()
        part = torch.empty_like(spread[0])
        return part, self.communicator.reduce_scatter(
            part.view(-1), spread.view(-1), phase=PHASE, asynchronous=asynchronous
        )

    def slice(self, x: torch.Tensor) -> torch.Tensor:
        """Returns this rank's slice of `x`, (batch, sequence, ...)."""
        return x.chunk(self.size, 0 if self.by_batch else 1)[self.index]

    def slice_of_positions(self, index: torch.Tensor) -> torch.Tensor:
        """Returns this rank's slice of a number for each position, (batch, sequence), or (sequence,) if it is the
        same for all sequences."""
        if index.dim() > 1:
            return self.slice(index)
        return index if self.by_batch else index.chunk(self.size)[self.index]

    def wait(self, *pending: Pending) -> None:
        """Waits for collectives."""
        wait_all(pending, self.communicator.recorder, PHASE)


class _Sum(torch.autograd.Function):
    """The sum over the ranks. With sequence parallelism each rank keeps its slice of the sum."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: TensorRanks, sequence: bool) -> torch.Tensor:
        ctx.ranks, ctx.sequence = ranks, sequence
        if sequence:
            return ranks.scatter_sum(x)[0]
        x = x.clone()
        ranks.sum(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[override]
        if ctx.sequence:
            gradient = ctx.ranks.whole(ctx.ranks.gather(gradient)[0])
        return gradient, None, None


class _Enter(torch.autograd.Function):
    """The input of parallel parts. Every rank has it, or with sequence parallelism a slice of it.

    Its gradient is the sum of the gradients of the ranks.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
        ctx.ranks = ranks
        return ranks.whole(ranks.gather(x)[0]) if ranks.sequence else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        if ctx.ranks.sequence:
            return ctx.ranks.scatter_sum(gradient)[0], None
        gradient = gradient.clone(memory_format=torch.contiguous_format)  # autograd may have given it to others
        ctx.ranks.sum(gradient)
        return gradient, None


class _Whole(torch.autograd.Function):
    """The whole sequence from the ranks' slices, for computations that every rank repeats."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
        ctx.ranks = ranks
        return ranks.whole(ranks.gather(x)[0])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return ctx.ranks.slice(gradient), None


# torch.compile doesn't trace collectives. It compiles the parts between them.
@uncompiled
def sum_over_ranks(x: torch.Tensor, ranks: TensorRanks, *, sequence: bool) -> torch.Tensor:
    """Returns the sum of `x` over the ranks, or with `sequence` this rank's slice of it."""
    return _Sum.apply(x, ranks, sequence)  # type: ignore[return-value]


@uncompiled
def enter(x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
    """Returns the input of parallel parts, (batch, sequence, hidden), from `x` that every rank has.

    With sequence parallelism `x` is this rank's slice. Backward sums the gradients of the ranks.
    """
    return _Enter.apply(x, ranks)  # type: ignore[return-value]


@uncompiled
def whole_sequence(x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
    """Returns the whole sequence, (batch, sequence, hidden), from the ranks' slices."""
    return _Whole.apply(x, ranks)  # type: ignore[return-value]


@uncompiled
@torch.no_grad()
def maximum_over_ranks(x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
    """Returns the maximum of `x` over the ranks, without a gradient."""
    x = x.detach().clone()
    ranks.maximum(x)
    return x


def flat(x: torch.Tensor) -> torch.Tensor:
    """Returns `x`, (..., columns), as (rows, columns)."""
    return x.reshape(-1, x.shape[-1])
