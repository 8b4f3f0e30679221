"""Embedding and cross-entropy over a vocabulary that is split over the ranks (Shoeybi et al. 2019, section 3)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from wirecost.train.models.blocks import VocabularyLoss
from wirecost.train.models.vocabulary import missing
from wirecost.train.parallel.tensor.linear import column_linear
from wirecost.train.parallel.tensor.ranks import TensorRanks, maximum_over_ranks, sum_over_ranks
from wirecost.train.parallel.tensor.shards import Shards, mark_partial


class VocabularyEmbedding(nn.Module):
    """Each rank looks up the tokens that it has; the others' rows are zero, and the sum is everything."""

    def __init__(self, embedding: nn.Embedding, shards: Shards, ranks: TensorRanks) -> None:
        super().__init__()
        self.weight = shards.of(embedding.weight, 0)
        self.ranks = ranks

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        local, mine = _local(tokens, len(self.weight), self.ranks)
        rows = functional.embedding(local, self.weight).masked_fill(~mine.unsqueeze(-1), 0)
        return sum_over_ranks(rows, self.ranks, sequence=self.ranks.sequence)


class SlicedEmbedding(nn.Module):
    """With sequence parallelism: what is looked up, (..., sequence, hidden), for this rank's slice alone."""

    def __init__(self, embedding: nn.Embedding, ranks: TensorRanks) -> None:
        super().__init__()
        self.weight = embedding.weight
        self.ranks = ranks
        mark_partial(self.weight)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return functional.embedding(self.ranks.slice(index, -1), self.weight)


class ParallelVocabularyLoss(nn.Module):
    """Each rank has the logits of its tokens: the largest and two sums of exponentials and targets' logits, all
    (batch, positions) in FP32, are what has to move."""

    def __init__(self, loss: VocabularyLoss, shards: Shards, ranks: TensorRanks) -> None:
        super().__init__()
        assert isinstance(loss.weight, nn.Parameter)
        self.vocabulary = len(loss.weight)
        self.weight = shards.of(loss.weight, 0)
        self.bias = None if loss.bias is None else shards.of(loss.bias, 0)
        self.ranks = ranks

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        rows = len(self.weight)
        more = missing(rows)
        logits = column_linear(x, self.weight, None, self.ranks, more)
        if self.bias is not None:
            logits = logits + functional.pad(self.bias, (0, more))
        logits = logits.float()
        real = min(rows, self.vocabulary - self.ranks.index * rows)
        if real < rows + more:
            padding = torch.arange(rows + more, device=logits.device) >= real
            logits = logits.masked_fill(padding, -math.inf)
        logits = logits - maximum_over_ranks(logits.amax(-1), self.ranks).unsqueeze(-1)
        local, mine = _local(targets, rows, self.ranks)
        target = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(~mine, 0)
        sums = sum_over_ranks(torch.stack([logits.exp().sum(-1), target]), self.ranks, sequence=False)
        return (sums[0].log() - sums[1]).mean()


def _local(tokens: torch.Tensor, rows: int, ranks: TensorRanks) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens as rows of this rank's shard, and which of them are there (the others are put somewhere)."""
    local = tokens - ranks.index * rows
    return local.clamp(0, rows - 1), (local >= 0) & (local < rows)
