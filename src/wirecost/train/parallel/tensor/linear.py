"""Linear layers whose weight is split over the ranks by columns or by rows (Shoeybi et al. 2019, section 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from wirecost.train.communicator import DONE
from wirecost.train.models.vocabulary import padded
from wirecost.train.parallel.base import uncompiled
from wirecost.train.parallel.tensor.ranks import TensorRanks, flat
from wirecost.train.parallel.tensor.shards import Shards, mark_partial


class _Column(torch.autograd.Function):
    """x W^T + b for this rank's shard of W's rows and of b. Without b, W may get `padding` rows of zeros.

    With sequence parallelism, the slice of `x` is kept, and backward gathers it again (Korthikanti et al. 2022,
    section 4.2.2).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        ranks: TensorRanks,
        padding: int,
    ) -> torch.Tensor:
        ctx.ranks = ranks
        ctx.padding = padding
        ctx.biased = bias is not None
        ctx.save_for_backward(x, weight)
        full = ranks.whole(ranks.gather(x)[0]) if ranks.sequence else x
        return functional.linear(full, padded(weight, padding), bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        ranks: TensorRanks = ctx.ranks
        spread, gathering = ranks.gather(x, asynchronous=ranks.overlap) if ranks.sequence else (x, DONE)
        x_gradient = gradient @ padded(weight, ctx.padding)
        if ranks.sequence:
            ranks.wait(gathering)
            x = ranks.whole(spread)
            x_gradient, summing = ranks.scatter_sum(x_gradient, asynchronous=ranks.overlap)
        else:
            summing = ranks.sum(x_gradient, asynchronous=ranks.overlap)
        weight_gradient = (flat(gradient).t() @ flat(x))[: len(weight)]
        bias_gradient = flat(gradient).sum(0) if ctx.biased else None
        ranks.wait(summing)
        return x_gradient, weight_gradient, bias_gradient, None, None


class _Row(torch.autograd.Function):
    """The sum over the ranks of x W^T, plus b. Each rank has its part of `x` and of W's columns, and all of b."""

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
        # With sequence parallelism this is the part of this rank's slice of the sequence.
        bias_gradient = flat(gradient).sum(0) if ctx.biased else None
        if ctx.ranks.sequence:
            gradient = ctx.ranks.whole(ctx.ranks.gather(gradient)[0])
        return gradient @ weight, flat(gradient).t() @ flat(x), bias_gradient, None


@uncompiled
def column_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, ranks: TensorRanks, padding: int = 0
) -> torch.Tensor:
    """Computes this rank's outputs of a linear that is split by columns.

    Args:
        x: (batch, sequence, inputs), or with sequence parallelism this rank's slice of the sequence.
        weight, bias: this rank's shards, (outputs, inputs) and (outputs,).
        padding: number of zeros to add to the outputs. It needs `bias` to be None.

    Returns:
        (batch, sequence, outputs + padding).
    """
    return _Column.apply(x, weight, bias, ranks, padding)  # type: ignore[return-value]


@uncompiled
def row_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, ranks: TensorRanks
) -> torch.Tensor:
    """Computes a linear that is split by rows.

    Args:
        x: this rank's inputs, (batch, sequence, inputs).
        weight: this rank's shard, (outputs, inputs).
        bias: the whole bias, (outputs,), or None.

    Returns:
        (batch, sequence, outputs), or with sequence parallelism this rank's slice of the sequence.
    """
    return _Row.apply(x, weight, bias, ranks)  # type: ignore[return-value]


class ColumnLinear(nn.Module):
    """A linear layer that is split by columns.

    Args:
        entered: whether the input has passed through `ranks.enter`, because several linears share it. Then this
            module doesn't communicate.
    """

    def __init__(self, linear: nn.Linear, shards: Shards, ranks: TensorRanks, *, entered: bool = False) -> None:
        super().__init__()
        self.weight = shards.shard(linear.weight, 0)
        self.bias = None if linear.bias is None else shards.shard(linear.bias, 0)
        self.ranks = ranks
        self.entered = entered

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.entered:
            return functional.linear(x, self.weight, self.bias)
        return column_linear(x, self.weight, self.bias, self.ranks)


class RowLinear(nn.Module):
    """A linear layer that is split by rows."""

    def __init__(self, linear: nn.Linear, shards: Shards, ranks: TensorRanks) -> None:
        super().__init__()
        self.weight = shards.shard(linear.weight, 1)
        self.bias = linear.bias
        self.ranks = ranks
        if ranks.sequence:
            mark_partial(self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return row_linear(x, self.weight, self.bias, self.ranks)
