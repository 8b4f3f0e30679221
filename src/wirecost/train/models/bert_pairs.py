"""Micro-batches of BERT from a prepared corpus: pairs of sentences, with whole words masked."""

from __future__ import annotations

import numpy as np
import torch

from wirecost.corpus.prepared import CorpusVocabulary
from wirecost.spec import Workload
from wirecost.train.models.bert_examples import CLASSIFY, MASK, MASKED_SHARE, SEPARATOR
from wirecost.train.texts import text_length

_NAMES = {CLASSIFY: "[CLS]", SEPARATOR: "[SEP]", MASK: "[MASK]"}


class BERTPairs:
    """Sequences of the form [CLS] A [SEP] B [SEP], where A and B follow each other in the text.

    The border between A and B is a random one of the window's borders between sentences, or its middle if it has
    none. A and B are swapped with a probability of 1/2 (Lan et al. 2019, section 3.1). Words are chosen at random
    until exactly `masked` tokens are predicted. A word is masked whole, except for a last one if no word fits. Of
    the chosen tokens 80 % become [MASK], 10 % a random token, and 10 % are unchanged (Devlin et al. 2018, section
    3.1, and the whole-word masking of their code).

    The tensors are those of `BERTExamples`.
    """

    overlap = 0
    needs_breaks = True

    def __init__(self, workload: Workload, vocabulary: CorpusVocabulary) -> None:
        self.length = text_length(workload)
        self.masked = max(1, round(MASKED_SHARE * workload.sequence_length))
        self.words = vocabulary.size
        special = vocabulary.special or {}
        own = all(name in special for name in _NAMES.values())
        self.classify, self.separator, self.mask = (
            special[name] if own else workload.text_vocabulary + number for number, name in _NAMES.items()
        )
        starts = vocabulary.word_starts
        self.word_starts = np.ones(self.words, dtype=bool) if starts is None else starts
        self.end = vocabulary.end

    def batch(
        self, rows: np.ndarray, draws: list[np.random.Generator], breaks: list[np.ndarray]
    ) -> dict[str, torch.Tensor]:
        """Returns a micro-batch, see `Examples.batch`.

        Args:
            breaks: where sentences begin in each row.
        """
        shape = (len(rows), self.length + 3)
        inputs = np.full(shape, self.separator, dtype=np.int64)
        inputs[:, 0] = self.classify
        segments = np.zeros(shape, dtype=np.int64)
        masked = np.empty((len(rows), self.masked), dtype=np.int64)
        targets = np.empty_like(masked)
        order = np.empty(len(rows), dtype=np.int64)
        for n, (row, draw, borders) in enumerate(zip(rows, draws, breaks, strict=True)):
            border = int(borders[draw.integers(len(borders))]) if len(borders) else self.length // 2
            order[n] = draw.integers(2)
            first, second = (row[border:], row[:border]) if order[n] else (row[:border], row[border:])
            inputs[n, 1 : 1 + len(first)] = first
            inputs[n, 2 + len(first) : -1] = second
            segments[n, 2 + len(first) :] = 1
            positions = self._choose(first, second, draw)
            masked[n] = positions
            targets[n] = inputs[n, positions]
            random = draw.random(self.masked)
            inputs[n, positions[random < 0.8]] = self.mask
            changed = positions[random >= 0.9]
            inputs[n, changed] = draw.integers(0, self.words, len(changed))
        arrays = {"inputs": inputs, "segments": segments, "masked": masked, "targets": targets, "order": order}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _choose(self, first: np.ndarray, second: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Returns the positions of the tokens that are predicted, sorted, (masked,)."""
        text = np.concatenate([first, second])
        positions = np.arange(1, 1 + len(text))
        positions[len(first) :] += 1
        starts = self.word_starts[text]
        starts[0] = starts[min(len(first), len(text) - 1)] = True
        word = np.cumsum(starts) - 1
        lengths = np.bincount(word)
        order = draw.permutation(len(lengths))
        if self.end is not None:
            # The end of a document is chosen last: nothing is learned from it.
            is_end = text[np.flatnonzero(starts)[order]] == self.end
            order = np.concatenate([order[~is_end], order[is_end]])
        total = np.cumsum(lengths[order])
        count = int(np.searchsorted(total, self.masked, "right"))
        chosen = np.zeros(len(lengths), dtype=bool)
        chosen[order[:count]] = True
        left = self.masked - (int(total[count - 1]) if count else 0)
        for candidate in order[count:]:
            if not left:
                break
            if lengths[candidate] <= left:
                chosen[candidate] = True
                left -= int(lengths[candidate])
        picked = chosen[word]
        if left:
            picked[np.flatnonzero(~picked)[:left]] = True
        return positions[picked]
