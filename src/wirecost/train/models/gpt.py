"""GPT: a causal decoder with learned positions and a tied output embedding (Radford et al. 2019)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from wirecost.spec import Workload
from wirecost.train.models.blocks import Layer, initialise


class GPT(nn.Module):
    """Token ids (batch, sequence + 1), int64, in; the mean cross-entropy of the next token, a scalar, out."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.tokens = nn.Embedding(workload.vocab_size, workload.hidden)
        self.positions = nn.Embedding(workload.sequence_length, workload.hidden)
        self.layers = nn.ModuleList(
            Layer(workload.hidden, workload.heads, workload.ffn, causal=True) for _ in range(workload.layers)
        )
        self.norm = nn.LayerNorm(workload.hidden)
        initialise(self, workload.layers)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        inputs, targets = ids[:, :-1], ids[:, 1:]
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
