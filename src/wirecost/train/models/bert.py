"""BERT: an encoder with a masked-token head and a sentence-order head.

The norms follow the sublayers as in the original (Devlin et al. 2018, arXiv:1810.04805), so the parameters are
those of the published checkpoints. Megatron-LM places the norms before the sublayers (Shoeybi et al. 2019,
arXiv:1909.08053, section 5.3). As in Megatron-LM, sentence order replaces next-sentence prediction (Lan et al.
2019, ALBERT, arXiv:1909.11942, section 3.1).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from wirecost.spec import Workload
from wirecost.train.models.base import Batch, Model, State, Unit
from wirecost.train.models.blocks import MLP, SelfAttention, VocabularyLoss, gelu, initialise


class BERTEmbedding(Unit):
    """The normalised sum of the embeddings of tokens, positions and segments."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.tokens = nn.Embedding(workload.vocab_size, workload.hidden)
        self.positions = nn.Embedding(workload.sequence_length, workload.hidden)
        self.segments = nn.Embedding(2, workload.hidden)
        self.norm = nn.LayerNorm(workload.hidden)

    def forward(self, state: State, batch: Batch) -> State:
        inputs = batch["inputs"]
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.tokens(inputs) + self.positions(positions) + self.segments(batch["segments"])
        return (self.norm(x),)


class BERTLayer(Unit):
    """An encoder layer."""

    layers = 1

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.attention = SelfAttention(workload.hidden, workload.heads, causal=False)
        self.attention_norm = nn.LayerNorm(workload.hidden)
        self.mlp = MLP(workload.hidden, workload.ffn)
        self.mlp_norm = nn.LayerNorm(workload.hidden)

    def forward(self, state: State, batch: Batch) -> State:
        (x,) = state
        x = self.attention_norm(x + self.attention(x))
        return (self.mlp_norm(x + self.mlp(x)),)


class BERTHead(Unit):
    """The mean loss of the masked tokens plus the mean loss of the sentence order. All sequences have equal
    weights."""

    def __init__(self, workload: Workload, tied: torch.Tensor) -> None:
        super().__init__()
        self.transform = nn.Linear(workload.hidden, workload.hidden)
        self.norm = nn.LayerNorm(workload.hidden)
        self.vocabulary = VocabularyLoss(tied, bias=True)
        self.pooler = nn.Linear(workload.hidden, workload.hidden)
        self.order = nn.Linear(workload.hidden, 2)

    def forward(self, state: State, batch: Batch) -> State:
        (x,) = state
        # Logits are computed for masked positions only, which are 15 % of all positions.
        index = batch["masked"].unsqueeze(-1).expand(-1, -1, x.shape[-1])
        masked = self.norm(gelu(self.transform(x.gather(1, index))))
        order = self.order(torch.tanh(self.pooler(x[:, 0])))
        return (
            self.vocabulary(masked, batch["targets"]) + functional.cross_entropy(order.float(), batch["order"]),
        )


def bert(workload: Workload) -> Model:
    """Returns an initialised BERT."""
    embedding = BERTEmbedding(workload)
    layers = [BERTLayer(workload) for _ in range(workload.layers)]
    model = Model([embedding, *layers, BERTHead(workload, embedding.tokens.weight)])
    initialise(model)
    return model
