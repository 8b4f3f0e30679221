"""Embedding and cross-entropy with a vocabulary that is split over the ranks (Shoeybi et al. 2019, section 3)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from wirecost.train.models.blocks import VocabularyLoss
from wirecost.train.models.vocabulary import padding_for
from wirecost.train.parallel.tensor.linear import column_linear
from wirecost.train.parallel.tensor.ranks import TensorRanks, maximum_over_ranks, sum_over_ranks
from wirecost.train.parallel.tensor.shards import Shards, mark_partial


class VocabularyEmbedding(nn.Module):
    """An embedding in which each rank looks up its own tokens. Rows of other tokens are zero, and the rows are
    summed."""

    def __init__(self, embedding: nn.Embedding, shards: Shards, ranks: TensorRanks) -> None:
        super().__init__()
        self.weight = shards.shard(embedding.weight, 0)
        self.ranks = ranks

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        local, is_local = _local_rows(tokens, len(self.weight), self.ranks)
        rows = functional.embedding(local, self.weight).masked_fill(~is_local.unsqueeze(-1), 0)
        return sum_over_ranks(rows, self.ranks, sequence=self.ranks.sequence)


class SlicedEmbedding(nn.Module):
    """An embedding with sequence parallelism, which looks up only this rank's slice of the positions."""

    def __init__(self, embedding: nn.Embedding, ranks: TensorRanks) -> None:
        super().__init__()
        self.weight = embedding.weight
        self.ranks = ranks
        mark_partial(self.weight)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return functional.embedding(self.ranks.slice_of_positions(index), self.weight)


class ParallelVocabularyLoss(nn.Module):
    """The mean cross-entropy with logits that are split over the ranks by the vocabulary.

    The ranks communicate three FP32 tensors, (batch, positions): the largest logits, the sums of the
    exponentials, and the logits of the targets.
    """

    def __init__(self, loss: VocabularyLoss, shards: Shards, ranks: TensorRanks) -> None:
        super().__init__()
        assert isinstance(loss.weight, nn.Parameter)
        self.vocabulary = len(loss.weight)
        self.weight = shards.shard(loss.weight, 0)
        self.bias = None if loss.bias is None else shards.shard(loss.bias, 0)
        self.ranks = ranks

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        rows = len(self.weight)
        padding = padding_for(rows)
        logits = column_linear(x, self.weight, None, self.ranks, padding)
        if self.bias is not None:
            logits = logits + functional.pad(self.bias, (0, padding))
        logits = logits.float()
        words = min(rows, self.vocabulary - self.ranks.index * rows)
        if words < rows + padding:
            is_padding = torch.arange(rows + padding, device=logits.device) >= words
            logits = logits.masked_fill(is_padding, -math.inf)
        logits = logits - maximum_over_ranks(logits.amax(-1), self.ranks).unsqueeze(-1)
        local, is_local = _local_rows(targets, rows, self.ranks)
        target = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(~is_local, 0)
        sums = sum_over_ranks(torch.stack([logits.exp().sum(-1), target]), self.ranks, sequence=False)
        return (sums[0].log() - sums[1]).mean()


def _local_rows(tokens: torch.Tensor, rows: int, ranks: TensorRanks) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the rows of tokens in this rank's shard, and a mask of the tokens that are in it.

    The rows of other tokens are arbitrary valid ones.
    """
    local = tokens - ranks.index * rows
    return local.clamp(0, rows - 1), (local >= 0) & (local < rows)
