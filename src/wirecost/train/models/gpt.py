"""GPT: a causal decoder with learned positions and a tied output embedding (Radford et al. 2019)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from wirecost.spec import Workload
from wirecost.train.models.base import Batch, Model, State, Unit
from wirecost.train.models.blocks import Layer, VocabularyLoss, initialise
from wirecost.train.texts import text_length


class GPTEmbedding(Unit):
    """The sum of the embeddings of tokens and positions.

    If a rank has only a part of each sequence, `batch["positions"]` gives the positions.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.tokens = nn.Embedding(workload.vocab_size, workload.hidden)
        self.positions = nn.Embedding(workload.sequence_length, workload.hidden)

    def forward(self, state: State, batch: Batch) -> State:
        inputs = batch["inputs"]
        positions = batch.get("positions")
        if positions is None:
            positions = torch.arange(inputs.shape[1], device=inputs.device)
        return (self.tokens(inputs) + self.positions(positions),)


class GPTLayer(Unit):
    """A decoder layer."""

    layers = 1

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.layer = Layer(workload.hidden, workload.heads, workload.ffn, causal=True, biases=workload.biases)

    def forward(self, state: State, batch: Batch) -> State:
        (x,) = state
        return (self.layer(x),)


class GPTHead(Unit):
    """The last norm, and the mean cross-entropy of the next token."""

    def __init__(self, workload: Workload, tied: torch.Tensor) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(workload.hidden)
        self.vocabulary = VocabularyLoss(tied)

    def forward(self, state: State, batch: Batch) -> State:
        (x,) = state
        return (self.vocabulary(self.norm(x), batch["targets"]),)


def gpt(workload: Workload) -> Model:
    """Returns an initialised GPT."""
    embedding = GPTEmbedding(workload)
    layers = [GPTLayer(workload) for _ in range(workload.layers)]
    model = Model([embedding, *layers, GPTHead(workload, embedding.tokens.weight)])
    initialise(model, workload.layers)
    return model


class GPTExamples:
    """Micro-batches for next-token prediction: `inputs` and `targets`, int64 (batch, sequence)."""

    overlap = 1

    def __init__(self, workload: Workload) -> None:
        self.length = text_length(workload)

    def batch(self, rows: np.ndarray, draws: list[np.random.Generator]) -> dict[str, torch.Tensor]:
        """Returns a micro-batch, see `Examples.batch`."""
        ids = torch.from_numpy(rows.astype(np.int64))
        return {"inputs": ids[:, :-1], "targets": ids[:, 1:]}
