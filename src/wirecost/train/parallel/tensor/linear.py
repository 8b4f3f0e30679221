"""Linears whose weight is split over the ranks by columns or by rows (Shoeybi et al. 2019, section 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from wirecost.train.communicator import DONE
from wirecost.train.models.vocabulary import aligned
from wirecost.train.parallel.base import uncompiled
from wirecost.train.parallel.tensor.ranks import TensorRanks, flat
from wirecost.train.parallel.tensor.shards import Shards, mark_partial


class _Column(torch.autograd.Function):
    """x W^T + b for a shard of W's rows and of b, or without b and with `more` rows of zeros. With sequence
    parallelism the slice of `x` is kept, and gathered again in backward (Korthikanti et al. 2022, section
    4.2.2)."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, ranks: TensorRanks, more: int
    ) -> torch.Tensor:
        ctx.ranks = ranks
        ctx.more = more
        ctx.biased = bias is not None
        ctx.save_for_backward(x, weight)
        whole = ranks.whole(ranks.gather(x)[0]) if ranks.sequence else x
        return functional.linear(whole, aligned(weight, more), bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        ranks: TensorRanks = ctx.ranks
        spread, gathering = ranks.gather(x, asynchronous=ranks.overlap) if ranks.sequence else (x, DONE)
        of_x = gradient @ aligned(weight, ctx.more)
        if ranks.sequence:
            ranks.wait(gathering)
            x = ranks.whole(spread)
            of_x, summing = ranks.scatter_sum(of_x, asynchronous=ranks.overlap)
        else:
            summing = ranks.sum(of_x, asynchronous=ranks.overlap)
        of_weight = (flat(gradient).t() @ flat(x))[: len(weight)]
        of_bias = flat(gradient).sum(0) if ctx.biased else None
        ranks.wait(summing)
        return of_x, of_weight, of_bias, None, None


class _Row(torch.autograd.Function):
    """The sum over the ranks of x W^T for a shard of W's columns and the ranks' own `x`, and b, which all have."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, ranks: TensorRanks
    ) -> torch.Tensor:
        ctx.ranks = ranks
        ctx.biased = bias is not None
        ctx.save_for_backward(x, weight)
        y = functional.linear(x, weight)
        if ranks.sequence:
            y = ranks.scatter_sum(y)[0]
        else:
            ranks.sum(y)
        return y if bias is None else y.add_(bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        of_bias = flat(gradient).sum(0) if ctx.biased else None  # of this rank's slice of the sequence, if any
        if ctx.ranks.sequence:
            gradient = ctx.ranks.whole(ctx.ranks.gather(gradient)[0])
        return gradient @ weight, flat(gradient).t() @ flat(x), of_bias, None


@uncompiled
def column_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, ranks: TensorRanks, more: int = 0
) -> torch.Tensor:
    """(..., inputs), whole or a slice of the sequence, to (..., this rank's outputs and `more` zeros)."""
    return _Column.apply(x, weight, bias, ranks, more)  # type: ignore[return-value]


@uncompiled
def row_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, ranks: TensorRanks
) -> torch.Tensor:
    """(..., this rank's inputs) to (..., outputs), whole or a slice of the sequence."""
    return _Row.apply(x, weight, bias, ranks)  # type: ignore[return-value]


class ColumnLinear(nn.Module):
    """`entered`: the input has been through `ranks.enter` (several linears share it), so nothing moves here."""

    def __init__(self, linear: nn.Linear, shards: Shards, ranks: TensorRanks, *, entered: bool = False) -> None:
        super().__init__()
        self.weight = shards.of(linear.weight, 0)
        self.bias = None if linear.bias is None else shards.of(linear.bias, 0)
        self.ranks = ranks
        self.entered = entered

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.entered:
            return functional.linear(x, self.weight, self.bias)
        return column_linear(x, self.weight, self.bias, self.ranks)


class RowLinear(nn.Module):
    def __init__(self, linear: nn.Linear, shards: Shards, ranks: TensorRanks) -> None:
        super().__init__()
        self.weight = shards.of(linear.weight, 1)
        self.bias = linear.bias
        self.ranks = ranks
        if ranks.sequence:
            mark_partial(self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return row_linear(x, self.weight, self.bias, self.ranks)
