"""Micro-batches for masked tokens and sentence order (Devlin et al. 2018 and Lan et al. 2019, each section
3.1)."""

from __future__ import annotations

import numpy as np
import torch

from wirecost.spec import Workload
from wirecost.train.texts import text_length

MASKED_SHARE = 0.15
CLASSIFY, SEPARATOR, MASK = range(3)
"""Special tokens. Their ids follow the vocabulary of the text."""


class BERTExamples:
    """Sequences of the form [CLS] half [SEP] other half [SEP]. The halves are swapped with a probability of 1/2.

    In every sequence exactly `masked` positions are predicted, so the mean over any number of sequences is the
    mean of their means. Of these positions 80 % become [MASK], 10 % a random token, and 10 % are unchanged.

    The tensors of a micro-batch are int64: `inputs` and `segments`, (batch, sequence); `masked` (the positions)
    and `targets`, (batch, masked); `order`, (batch,), which is 1 for swapped halves.
    """

    overlap = 0

    def __init__(self, workload: Workload) -> None:
        self.length = text_length(workload)
        self.masked = max(1, round(MASKED_SHARE * workload.sequence_length))
        self.words = workload.text_vocabulary
        # The position of the separator doesn't depend on the order. Otherwise an odd length would reveal it.
        self.half = self.length // 2
        self.text = np.r_[1 : 1 + self.half, 2 + self.half : 2 + self.length]  # positions of text

    def batch(self, rows: np.ndarray, draws: list[np.random.Generator]) -> dict[str, torch.Tensor]:
        """Returns a micro-batch, see `Examples.batch`."""
        shape = (len(rows), self.length + 3)
        inputs = np.full(shape, self.words + SEPARATOR, dtype=np.int64)
        inputs[:, 0] = self.words + CLASSIFY
        masked = np.empty((len(rows), self.masked), dtype=np.int64)
        targets = np.empty_like(masked)
        order = np.empty(len(rows), dtype=np.int64)
        for n, (row, draw) in enumerate(zip(rows, draws, strict=True)):
            order[n] = draw.integers(2)
            inputs[n, self.text] = np.roll(row, self.half) if order[n] else row
            masked[n] = np.sort(draw.choice(self.text, self.masked, replace=False))
            targets[n] = inputs[n, masked[n]]
            random = draw.random(self.masked)
            inputs[n, masked[n][random < 0.8]] = self.words + MASK
            changed = masked[n][random >= 0.9]
            inputs[n, changed] = draw.integers(0, self.words, len(changed))
        segments = np.zeros(shape, dtype=np.int64)
        segments[:, 2 + self.half :] = 1
        arrays = {"inputs": inputs, "segments": segments, "masked": masked, "targets": targets, "order": order}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
