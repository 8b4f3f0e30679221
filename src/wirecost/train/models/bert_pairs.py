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
        count, length = rows.shape
        # All random numbers of a sequence come from its own generator, whatever the other sequences are.
        uniform = np.stack([draw.random(2 + length + 2 * self.masked) for draw in draws])
        keys, shown = uniform[:, 2 : 2 + length], uniform[:, 2 + length : 2 + length + self.masked]
        border = np.array(
            [b[int(u * len(b))] if len(b) else length // 2 for u, b in zip(uniform[:, 0], breaks, strict=True)]
        )
        order = (uniform[:, 1] < 0.5).astype(np.int64)
        first = np.where(order == 1, length - border, border)[:, None]  # number of tokens of the first part
        place = np.arange(length)
        text = np.take_along_axis(rows.astype(np.int64), (place + (order * border)[:, None]) % length, axis=1)
        positions = 1 + place + (place >= first)
        inputs = np.full((count, length + 3), self.separator, dtype=np.int64)
        inputs[:, 0] = self.classify
        np.put_along_axis(inputs, positions, text, axis=1)
        segments = (np.arange(length + 3) >= first + 2).astype(np.int64)
        masked = np.take_along_axis(positions, self._choose(text, first, keys), axis=1)
        targets = np.take_along_axis(inputs, masked, axis=1)
        other = (uniform[:, 2 + length + self.masked :] * self.words).astype(np.int64)
        replaced = np.where(shown < 0.8, self.mask, np.where(shown < 0.9, targets, other))
        np.put_along_axis(inputs, masked, replaced, axis=1)
        arrays = {"inputs": inputs, "segments": segments, "masked": masked, "targets": targets, "order": order}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _choose(self, text: np.ndarray, first: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Returns the tokens of each sequence that are predicted, sorted, (batch, masked).

        Args:
            text: ids, (batch, length).
            first: number of tokens of the first part, (batch, 1).
            keys: random numbers from 0 to 1, (batch, length).
        """
        place = np.arange(text.shape[1])
        starts = self.word_starts[text] | (place == 0) | (place == first)
        begin = np.maximum.accumulate(np.where(starts, place, 0), axis=1)  # where the word of each token begins
        keys = np.take_along_axis(keys, begin, axis=1)
        if self.end is not None:
            # The end of a document is chosen last: nothing is learned from it.
            keys = keys + (np.take_along_axis(text, begin, axis=1) == self.end)
        chosen = np.argsort(keys, axis=1, kind="stable")  # words in a random order
        words = np.take_along_axis(begin, chosen, axis=1)
        if text.shape[1] > self.masked:
            for n in np.flatnonzero(words[:, self.masked - 1] == words[:, self.masked]):
                chosen[n] = chosen[n][_fitting(words[n], self.masked)]
        return np.sort(chosen[:, : self.masked], axis=1)


def _fitting(words: np.ndarray, count: int) -> np.ndarray:
    """Returns an order of tokens in which the first `count` are whole words, if some words fit.

    Args:
        words: the word of each token; the tokens of a word follow each other.
    """
    borders = np.flatnonzero(np.diff(words, prepend=-1, append=-1))
    begun = int(np.searchsorted(borders, count)) - 1  # the first word that doesn't fit
    left = count - int(borders[begun])
    early: list[np.ndarray] = [np.arange(borders[begun])]
    late: list[np.ndarray] = []
    for start, end in zip(borders[begun:-1].tolist(), borders[begun + 1 :].tolist(), strict=True):
        if end - start <= left:
            early.append(np.arange(start, end))
            left -= end - start
        else:
            late.append(np.arange(start, end))
        if not left:
            return np.concatenate([*early, *late, np.arange(end, len(words))])
    return np.concatenate([*early, *late])
