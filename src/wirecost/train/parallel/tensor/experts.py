"""Tensor parallelism of mixtures of experts: each expert is split as an MLP is.

All tensor-parallel ranks route the same tokens. With sequence parallelism each routes its slice of the sequence,
the choices are gathered, and the loads that the balancing loss is computed of are summed.
"""

from __future__ import annotations

import torch
from torch import nn

from wirecost.train.models.experts import MixtureMLP
from wirecost.train.parallel.base import uncompiled
from wirecost.train.parallel.tensor.ranks import TensorRanks, enter, sum_over_ranks
from wirecost.train.parallel.tensor.shards import Shards, mark_partial


class ParallelMix:
    """Computes this rank's part of the experts' outputs, and sums over the ranks. It replaces `MixtureMLP.mix`."""

    def __init__(self, mlp: MixtureMLP, ranks: TensorRanks) -> None:
        self.whole_mix = mlp.mix
        self.ranks = ranks

    @uncompiled
    def __call__(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        ranks, batch = self.ranks, len(x)
        # Each rank has a part of the gradient of a weight, because it has a part of the expert's output.
        weights = enter(weights.unflatten(0, (batch, -1)), ranks).flatten(0, 1)
        if ranks.sequence:
            chosen = ranks.whole(ranks.gather(chosen.unflatten(0, (batch, -1)))[0]).flatten(0, 1)
        return sum_over_ranks(self.whole_mix(enter(x, ranks), weights, chosen), ranks, sequence=ranks.sequence)


def split_mixture(mlp: nn.Module, shards: Shards, ranks: TensorRanks) -> None:
    """Splits the experts of a mixture in place. Shared experts are split as other MLPs are."""
    assert isinstance(mlp, MixtureMLP)
    for name, dim in (("gate", 1), ("up", 1), ("down", 2)):
        full = getattr(mlp.experts, name)
        shard = shards.shard(full, dim)
        if hasattr(full, "expert_part"):
            vars(shard)["expert_part"] = True
        setattr(mlp.experts, name, shard)
    if ranks.sequence:
        mark_partial(mlp.router.weight)
        mlp.mean_over_ranks = lambda x: sum_over_ranks(x, ranks, sequence=False) / ranks.size
    mlp.mix = ParallelMix(mlp, ranks)  # type: ignore[method-assign]
