"""Which sequences a rank trains on: the global batch of an iteration is the same however many ranks share it."""

from __future__ import annotations

import numpy as np
import torch

from wirecost.corpus.tokens import Tokens


class Batches:
    """Draws the sequences of every iteration from a seed; a rank takes its contiguous share of each."""

    def __init__(
        self, tokens: Tokens, *, sequence_length: int, global_batch: int, micro_batch: int, seed: int
    ) -> None:
        self.tokens = tokens
        self.length = sequence_length + 1
        self.global_batch = global_batch
        self.micro_batch = micro_batch
        self.seed = seed

    def share(self, iteration: int, rank: int, ranks: int) -> list[torch.Tensor]:
        """The rank's micro-batches of an iteration: int64 tensors of shape (micro_batch, sequence + 1)."""
        draw = np.random.default_rng([self.seed, iteration])
        starts = draw.integers(0, len(self.tokens) - self.length + 1, self.global_batch)
        mine = starts.reshape(ranks, -1, self.micro_batch)[rank]
        return [
            torch.from_numpy(np.stack([self.tokens[s : s + self.length] for s in batch]).astype(np.int64))
            for batch in mine
        ]
