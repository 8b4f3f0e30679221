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
        self.causal = causal
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, sequence, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, sequence, hidden))


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


def initialise(model: nn.Module, layers: int) -> None:
    """GPT-2's initialisation (Radford et al. 2019, 2.3): N(0, 0.02), residual outputs by 1/sqrt(2 layers)."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" not in name:
            residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)
