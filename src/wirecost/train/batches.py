"""Draws the sequences that a rank trains on. The global batch doesn't depend on how many ranks share it."""

from __future__ import annotations

import numpy as np
import torch

from wirecost.corpus.tokens import Tokens
from wirecost.train.models.build import Examples


class Batches:
    """Draws the sequences of every iteration from a seed. Each rank takes a contiguous share of them.

    Args:
        tokens: the corpus, (tokens,).
        examples: makes the micro-batches of the model's family.
        global_batch, micro_batch: numbers of sequences.
    """

    def __init__(
        self, tokens: Tokens, examples: Examples, *, global_batch: int, micro_batch: int, seed: int
    ) -> None:
        self.tokens = tokens
        self.examples = examples
        self.global_batch = global_batch
        self.micro_batch = micro_batch
        self.seed = seed

    def share(self, iteration: int, index: int, count: int) -> list[dict[str, torch.Tensor]]:
        """Returns the micro-batches of an iteration that belong to share `index` of `count`."""
        draw = np.random.default_rng([self.seed, iteration])
        length = self.examples.length
        starts = draw.integers(0, len(self.tokens) - length + 1, self.global_batch)
        share = np.arange(self.global_batch).reshape(count, -1, self.micro_batch)[index]
        return [
            self.examples.batch(
                np.stack([self.tokens[starts[n] : starts[n] + length] for n in numbers]),
                [np.random.default_rng([self.seed, iteration, int(n)]) for n in numbers],
            )
            for numbers in share
        ]
