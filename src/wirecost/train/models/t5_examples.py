"""Micro-batches for span corruption (Raffel et al. 2019, section 3.1.4), with a mean span length of 3 tokens."""

from __future__ import annotations

import numpy as np
import torch

from wirecost.spec import Workload
from wirecost.train.texts import SENTINELS, spans, text_length


class T5Examples:
    """Sequences in which sentinels replace spans of the text. The targets are the sentinels with their spans.

    All sequences have the same number of spans and of tokens in them. Inputs and targets therefore have exactly
    the lengths of the workload, without padding, and the mean over any number of sequences is the mean of their
    means. With 512 and 128 tokens, 96 of 576 tokens are cut out, which is a sixth. T5 cuts out 15 %.

    The tensors of a micro-batch are int64: `inputs`, (batch, sequence); `decoder_inputs` and `targets`, (batch,
    decoder sequence). The decoder reads the start token and then its own targets.

    Args:
        special: ids of special tokens. If they include `<pad>` and all sentinels, these are the start token and
            the sentinels, as in T5. Otherwise the ids behind the vocabulary of the text are.
    """

    overlap = 0

    def __init__(self, workload: Workload, special: dict[str, int] | None = None) -> None:
        self.spans = spans(workload)
        self.cut = workload.decoder_sequence - self.spans
        self.kept = workload.sequence_length - self.spans
        self.length = text_length(workload)
        first = workload.text_vocabulary
        own = t5_specials(special)
        self.start, self.sentinels = own or (first + SENTINELS, np.arange(first, first + SENTINELS))
        self.first_sentinel = int(self.sentinels[0])

    def batch(self, rows: np.ndarray, draws: list[np.random.Generator]) -> dict[str, torch.Tensor]:
        """Returns a micro-batch, see `Examples.batch`."""
        pairs = [self._cut(row.astype(np.int64), draw) for row, draw in zip(rows, draws, strict=True)]
        inputs, targets = (torch.from_numpy(np.stack(part)) for part in zip(*pairs, strict=True))
        start = torch.full((len(rows), 1), self.start)
        return {
            "inputs": inputs,
            "decoder_inputs": torch.cat([start, targets[:, :-1]], dim=1),
            "targets": targets,
        }

    def _cut(self, row: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Returns the inputs and the targets of one sequence."""
        kept_lengths = _parts(self.kept, self.spans, draw)
        cut = _parts(self.cut, self.spans, draw)
        ends = np.cumsum(np.stack([kept_lengths, cut], axis=1).reshape(-1))
        pieces = np.split(row, ends[:-1])
        inputs, targets = [], []
        for n in range(self.spans):
            sentinel = self.sentinels[n : n + 1]
            inputs += [pieces[2 * n], sentinel]
            targets += [sentinel, pieces[2 * n + 1]]
        return np.concatenate(inputs), np.concatenate(targets)


def t5_specials(special: dict[str, int] | None) -> tuple[int, np.ndarray] | None:
    """Returns the start token and the sentinels of T5's own vocabulary; None if they are missing."""
    names = [f"<extra_id_{n}>" for n in range(SENTINELS)]
    if special is None or "<pad>" not in special or any(name not in special for name in names):
        return None
    return special["<pad>"], np.array([special[name] for name in names])


def _parts(total: int, count: int, draw: np.random.Generator) -> np.ndarray:
    """Splits `total` into `count` positive integers. All such splits are equally likely."""
    borders = np.sort(draw.choice(np.arange(1, total), count - 1, replace=False))
    return np.diff(np.r_[0, borders, total])
