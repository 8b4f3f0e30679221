"""What tensor-parallel ranks do together: sums, and with sequence parallelism gathers and scatters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator, Pending, wait_all
from wirecost.train.parallel.base import uncompiled

PHASE = Phase.TENSOR_PARALLEL


@dataclass(frozen=True)
class TensorRanks:
    """The tensor group.

    `sequence`: between the parallel parts each rank has a slice of the sequence, (batch, sequence / n, hidden).
    `overlap`: in backward, a linear's communication runs while its other gradient is computed.
    """

    communicator: Communicator
    sequence: bool
    overlap: bool

    @property
    def size(self) -> int:
        return self.communicator.size

    @property
    def index(self) -> int:
        return self.communicator.group.index

    def sum(self, x: torch.Tensor, *, asynchronous: bool = False) -> Pending:
        """In place."""
        return self.communicator.all_reduce(x, phase=PHASE, asynchronous=asynchronous)

    def maximum(self, x: torch.Tensor) -> None:
        """In place."""
        self.communicator.all_reduce(x, op=dist.ReduceOp.MAX, phase=PHASE)

    def gather(self, x: torch.Tensor, *, asynchronous: bool = False) -> tuple[torch.Tensor, Pending]:
        """The whole sequence from slices (batch, sequence / n, ...); as `spread`, to be put in order by `whole`
        once the gather is done."""
        spread = x.new_empty((self.size, *x.shape))
        return spread, self.communicator.all_gather(
            spread.view(-1), x.contiguous().view(-1), phase=PHASE, asynchronous=asynchronous
        )

    @staticmethod
    def whole(spread: torch.Tensor) -> torch.Tensor:
        """(n, batch, sequence / n, ...) as (batch, sequence, ...); no copy for one sequence."""
        return spread.transpose(0, 1).flatten(1, 2)

    def scatter_sum(self, x: torch.Tensor, *, asynchronous: bool = False) -> tuple[torch.Tensor, Pending]:
        """This rank's slice of the sum of (batch, sequence, ...), once the reduce-scatter is done."""
        spread = x.unflatten(1, (self.size, -1)).transpose(0, 1).contiguous()
        part = torch.empty_like(spread[0])
        return part, self.communicator.reduce_scatter(
            part.view(-1), spread.view(-1), phase=PHASE, asynchronous=asynchronous
        )

    def slice(self, x: torch.Tensor, dim: int = 1) -> torch.Tensor:
        """This rank's slice of the sequence."""
        return x.chunk(self.size, dim)[self.index]

    def wait(self, *pending: Pending) -> None:
        wait_all(pending, self.communicator.recorder, PHASE)


class _Sum(torch.autograd.Function):
    """Sums over the ranks; with sequence parallelism each keeps its slice of the sum."""

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
    """What every rank has, or with sequence parallelism has a slice of, becomes the input of parallel parts:
    its gradient is the sum of theirs."""

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
    """The whole sequence from the ranks' slices, for what every rank computes alike."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
        ctx.ranks = ranks
        return ranks.whole(ranks.gather(x)[0])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return ctx.ranks.slice(gradient), None


# Collectives are opaque to `torch.compile`: what lies between them is compiled.
@uncompiled
def sum_over_ranks(x: torch.Tensor, ranks: TensorRanks, *, sequence: bool) -> torch.Tensor:
    return _Sum.apply(x, ranks, sequence)  # type: ignore[return-value]


@uncompiled
def enter(x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
    return _Enter.apply(x, ranks)  # type: ignore[return-value]


@uncompiled
def whole_sequence(x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
    return _Whole.apply(x, ranks)  # type: ignore[return-value]


@uncompiled
@torch.no_grad()
def maximum_over_ranks(x: torch.Tensor, ranks: TensorRanks) -> torch.Tensor:
    x = x.detach().clone()
    ranks.maximum(x)
    return x


def flat(x: torch.Tensor) -> torch.Tensor:
    """(rows, last dimension)."""
    return x.reshape(-1, x.shape[-1])
