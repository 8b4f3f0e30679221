"""Masked tokens and sentence order from running text (Devlin et al. 2018, 3.1; Lan et al. 2019, 3.1)."""

from __future__ import annotations

import numpy as np
import torch

from wirecost.spec import Workload
from wirecost.train.texts import text_length

MASKED_SHARE = 0.15
CLASSIFY, SEPARATOR, MASK = range(3)
"""Special tokens, counted from the end of the text's vocabulary."""


class BERTExamples:
    """[CLS] half [SEP] other half [SEP]; in every second sequence (by chance) the halves are swapped.

    Of every sequence exactly `masked` positions are to be predicted, so that a mean over any number of sequences
    is the mean of their means. Of those 80 % become [MASK], 10 % a random token, 10 % stay.

    A micro-batch: `inputs` and `segments` int64 (batch, sequence); `masked` (positions) and `targets` int64
    (batch, masked); `order` int64 (batch,), 1 where swapped.
    """

    def __init__(self, workload: Workload) -> None:
        self.length = text_length(workload)
        self.masked = max(1, round(MASKED_SHARE * workload.sequence_length))
        self.words = workload.text_vocabulary
        # The separator stands in one place, swapped or not: an odd length must not give the order away.
        self.half = self.length // 2
        self.text = np.r_[1 : 1 + self.half, 2 + self.half : 2 + self.length]  # positions of text

    def batch(self, rows: np.ndarray, draws: list[np.random.Generator]) -> dict[str, torch.Tensor]:
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
            lot = draw.random(self.masked)
            inputs[n, masked[n][lot < 0.8]] = self.words + MASK
            changed = masked[n][lot >= 0.9]
            inputs[n, changed] = draw.integers(0, self.words, len(changed))
        segments = np.zeros(shape, dtype=np.int64)
        segments[:, 2 + self.half :] = 1
        found = {"inputs": inputs, "segments": segments, "masked": masked, "targets": targets, "order": order}
        return {name: torch.from_numpy(array) for name, array in found.items()}
