"""Linear layers whose weight is split over the ranks by columns or by rows (Shoeybi et al. 2019, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from wirecost.train.models.vocabulary import padded
from wirecost.train.parallel.base import uncompiled
from wirecost.train.parallel.tensor.biases import bias_gradient
from wirecost.train.parallel.tensor.products import Gathered
from wirecost.train.parallel.tensor.ranks import TensorRanks, flat
from wirecost.train.parallel.tensor.shards import Shards, mark_partial


@dataclass
class Block:
    """The linears of a block: some that are split by columns, and after them one that is split by rows.

    Attributes:
        columns: the node of backward of the last call of the former, until the latter is called.
    """

    columns: Any = None


class _Columns(torch.autograd.Function):
    """x W^T + b for each of several W, of which this rank has a shard of the rows, and of b.

    The arguments after `padding` are all W and then as many b. Without b, W may get `padding` rows of zeros.

    With sequence parallelism, the slice of `x` is kept, and backward gathers it again (Korthikanti et al. 2022,
    section 4.2.2). In a block, this gather begins in backward of the block's row-parallel linear.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        ranks: TensorRanks,
        block: Block | None,
        padding: int,
        *shards: torch.Tensor | None,
    ) -> tuple[torch.Tensor, ...]:
        count = len(shards) // 2
        weights, biases = shards[:count], shards[count:]
        ctx.ranks, ctx.padding, ctx.biased = ranks, padding, [bias is not None for bias in biases]
        ctx.early = None
        if block is not None and ranks.sequence and ranks.overlap:
            block.columns = ctx
        ctx.save_for_backward(x, *weights)
        gathered = Gathered(x, ranks, asynchronous=ranks.overlap)
        return tuple(
            gathered.products(
                [(padded(w, padding).t(), b) for w, b in zip(weights, biases, strict=True) if w is not None]
            )
        )

    @staticmethod
    def begin(ctx: Any) -> tuple[Gathered, list[torch.Tensor]]:
        """Gathers the input of the node `ctx` again from now on. Returns it with the node's W."""
        # Saved tensors may be read only once, because a recomputation may have made them.
        x, *weights = ctx.saved_tensors
        ctx.early = Gathered(x, ctx.ranks, asynchronous=ctx.ranks.overlap), weights
        return ctx.early

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        ranks: TensorRanks = ctx.ranks
        gathered, weights = ctx.early or _Columns.begin(ctx)
        ctx.early = None
        x_gradient = gradients[0] @ padded(weights[0], ctx.padding)
        for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
            flat(x_gradient).addmm_(flat(gradient), padded(weight, ctx.padding))
        x = gathered.wait()
        if ranks.sequence:
            x_gradient, summing = ranks.scatter_sum(x_gradient, asynchronous=ranks.overlap)
        else:
            summing = ranks.sum(x_gradient, asynchronous=ranks.overlap)
        weight_gradients = [(flat(g).t() @ flat(x))[: len(w)] for g, w in zip(gradients, weights, strict=True)]
        bias_gradients = [
            bias_gradient(g) if biased else None for g, biased in zip(gradients, ctx.biased, strict=True)
        ]
        ranks.wait(summing)
        return x_gradient, None, None, None, *weight_gradients, *bias_gradients


class _Row(torch.autograd.Function):
    """The sum over the ranks of x W^T, plus b. Each rank has its part of `x` and of W's columns, and all of b."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        ranks: TensorRanks,
        block: Block | None,
    ) -> torch.Tensor:
        ctx.ranks = ranks
        ctx.biased = bias is not None
        ctx.columns = None
        if block is not None:
            ctx.columns, block.columns = block.columns, None
        ctx.save_for_backward(x, weight)
        # The product adds b in the same kernel. The sum has it from the first rank.
        y = functional.linear(x, weight, bias if ranks.index == 0 else None)
        if ranks.sequence:
            return ranks.scatter_sum(y)[0]
        ranks.sum(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        gathered = Gathered(gradient, ctx.ranks, asynchronous=ctx.ranks.overlap)
        if ctx.columns is not None:
            _Columns.begin(ctx.columns)
            ctx.columns = None
        # With sequence parallelism this is the part of this rank's slice of the sequence.
        summed = bias_gradient(gradient) if ctx.biased else None
        (x_gradient,) = gathered.products([(weight, None)])
        return x_gradient, flat(gathered.whole).t() @ flat(x), summed, None, None


@uncompiled
def column_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    ranks: TensorRanks,
    padding: int = 0,
    block: Block | None = None,
) -> torch.Tensor:
    """Computes this rank's outputs of a linear that is split by columns.

    Args:
        x: (batch, sequence, inputs), or with sequence parallelism this rank's slice of the sequence.
        weight, bias: this rank's shards, (outputs, inputs) and (outputs,).
        padding: number of zeros to add to the outputs. It needs `bias` to be None.
        block: the block whose only column-parallel linear this is.

    Returns:
        (batch, sequence, outputs + padding).
    """
    return _Columns.apply(x, ranks, block, padding, weight, bias)[0]


@uncompiled
def column_linears(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor | None],
    ranks: TensorRanks,
    block: Block | None = None,
) -> tuple[torch.Tensor, ...]:
    """Computes `column_linear` of one `x` for several linears, which communicate once for all of them."""
    return _Columns.apply(x, ranks, block, 0, *weights, *biases)  # type: ignore[return-value]


@uncompiled
def row_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    ranks: TensorRanks,
    block: Block | None = None,
) -> torch.Tensor:
    """Computes a linear that is split by rows.

    Args:
        x: this rank's inputs, (batch, sequence, inputs).
        weight: this rank's shard, (outputs, inputs).
        bias: the whole bias, (outputs,), or None.
        block: the block of which this is the row-parallel linear.

    Returns:
        (batch, sequence, outputs), or with sequence parallelism this rank's slice of the sequence.
    """
    return _Row.apply(x, weight, bias, ranks, block)  # type: ignore[return-value]


class ColumnLinear(nn.Module):
    """A linear layer that is split by columns. See `column_linear` for `block`."""

    def __init__(self, linear: nn.Linear, shards: Shards, ranks: TensorRanks, block: Block | None = None) -> None:
        super().__init__()
        self.weight = shards.shard(linear.weight, 0)
        self.bias = None if linear.bias is None else shards.shard(linear.bias, 0)
        self.ranks = ranks
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return column_linear(x, self.weight, self.bias, self.ranks, block=self.block)


def column_layers(x: torch.Tensor, *layers: nn.Module) -> tuple[torch.Tensor, ...]:
    """Returns the outputs of several `ColumnLinear` of a block for one `x`."""
    split = [layer for layer in layers if isinstance(layer, ColumnLinear)]
    weights, biases = [layer.weight for layer in split], [layer.bias for layer in split]
    return column_linears(x, weights, biases, split[0].ranks, split[0].block)


class RowLinear(nn.Module):
    """A linear layer that is split by rows. See `row_linear` for `block`."""

    def __init__(self, linear: nn.Linear, shards: Shards, ranks: TensorRanks, block: Block | None = None) -> None:
        super().__init__()
        self.weight = shards.shard(linear.weight, 1)
        self.bias = linear.bias
        self.ranks = ranks
        self.block = block
        if ranks.sequence:
            mark_partial(self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return row_linear(x, self.weight, self.bias, self.ranks, self.block)
