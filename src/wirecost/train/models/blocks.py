"""Transformer blocks that the model families share (Vaswani et al. 2017; pre-norm as in GPT-2)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """Multi-head attention over (batch, sequence, hidden)."""

    def __init__(self, hidden: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.head_size = hidden // heads
        self.causal = causal
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, _ = x.shape
        # Head by head, so that a contiguous slice of the rows is whole heads (tensor parallelism).
        q, k, v = self.qkv(x).view(batch, sequence, self.heads, 3, self.head_size).permute(3, 0, 2, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, hidden: int, ffn_hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, ffn_hidden)
        self.down = nn.Linear(ffn_hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn_hidden: int, *, causal: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = SelfAttention(hidden, heads, causal=causal)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = MLP(hidden, ffn_hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class VocabularyLoss(nn.Module):
    """Logits from a tied embedding and the mean cross-entropy, in FP32, of int64 targets (batch, sequence)."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = functional.linear(x, self.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def initialise(model: nn.Module, layers: int) -> None:
    """GPT-2's initialisation (Radford et al. 2019, 2.3): N(0, 0.02), residual outputs by 1/sqrt(2 layers)."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" not in name:
            residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)
