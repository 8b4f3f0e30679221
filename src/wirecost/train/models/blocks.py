"""Transformer blocks that the model families share (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from wirecost.train.models.vocabulary import aligned_logits, chunk_for, vocabulary_loss


class Attend(nn.Module):
    """Softmax attention without parameters. Queries, keys and values are (batch, heads, positions, head_size).

    Args:
        scale: factor of the scores. None is 1/sqrt(head_size).

    Attributes:
        recomputed: whether backward recomputes the attention from its inputs.
    """

    def __init__(self, *, causal: bool, scale: float | None = None) -> None:
        super().__init__()
        self.causal = causal
        self.scale = scale
        self.recomputed = False

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, score_bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the attended values.

        Args:
            score_bias: added to the scaled scores, (1, heads, sequence, sequence). It replaces the causal mask.
        """
        if self.recomputed:
            return keep_inputs(self._attend, q, k, v, score_bias)
        return self._attend(q, k, v, score_bias)

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, score_bias: torch.Tensor | None
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=score_bias,
            is_causal=self.causal and score_bias is None,
            scale=self.scale,
            enable_gqa=k.shape[1] < q.shape[1],
        )


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotates `x`, (..., head_size). The first and the second half of the last dimension form the pairs."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], dim=-1)


class SelfAttention(nn.Module):
    """Multi-head attention over (batch, sequence, hidden).

    Args:
        scale: factor of the scores. None is 1/sqrt(head_size).
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        *,
        causal: bool,
        head_size: int | None = None,
        biases: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_size = head_size or hidden // heads
        self.attend = Attend(causal=causal, scale=scale)
        self.qkv = nn.Linear(hidden, 3 * heads * self.head_size, bias=biases)
        self.out = nn.Linear(heads * self.head_size, hidden, bias=biases)

    def forward(self, x: torch.Tensor, score_bias: torch.Tensor | None = None) -> torch.Tensor:
        """Returns (batch, sequence, hidden). See `Attend.forward` for `score_bias`."""
        # The rows are ordered by head, so that tensor parallelism gets whole heads from a contiguous slice of
        # them.
        # Backward joins the gradients of what `unbind` splits in one copy.
        parts = self.qkv(x).unflatten(-1, (self.heads, 3, self.head_size)).unbind(-2)
        q, k, v = (part.transpose(1, 2) for part in parts)
        return self.out(self.attend(q, k, v, score_bias).transpose(1, 2).flatten(2))


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Returns GELU in the tanh form with which GPT-2 and BERT were trained."""
    return functional.gelu(x, approximate="tanh")


class MLP(nn.Module):
    """Two linear layers with an activation between them, over (..., hidden)."""

    def __init__(
        self,
        hidden: int,
        ffn_hidden: int,
        *,
        activation: Callable[[torch.Tensor], torch.Tensor] = gelu,
        biases: bool = True,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, ffn_hidden, bias=biases)
        self.down = nn.Linear(ffn_hidden, hidden, bias=biases)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x)))


class GatedMLP(nn.Module):
    """A SwiGLU MLP (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, hidden: int, ffn_hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, ffn_hidden, bias=False)
        self.up = nn.Linear(hidden, ffn_hidden, bias=False)
        self.down = nn.Linear(ffn_hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gated(x)
        return self.down(functional.silu(gate) * up)

    def gated(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the gate before its activation, and what it gates. Tensor parallelism replaces this."""
        return self.gate(x), self.up(x)


def keep_inputs(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns the result of `forward`, of which only the inputs are kept. Backward recomputes everything else."""
    # No unit draws random numbers, so the state of the generator needn't be kept.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


class Layer(nn.Module):
    """A transformer layer with norms before the sublayers, as in GPT-2."""

    def __init__(self, hidden: int, heads: int, ffn_hidden: int, *, causal: bool, biases: bool = True) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = SelfAttention(hidden, heads, causal=causal, biases=biases)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = MLP(hidden, ffn_hidden, biases=biases)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class VocabularyLoss(nn.Module):
    """Computes logits with an embedding, and their mean cross-entropy in FP32.

    The input is (batch, positions, hidden), and the targets are int64 (batch, positions).

    Attributes:
        fused: whether training computes logits and loss by chunks (see vocabulary.py).
        compiled: whether torch.compile compiles the computation of a chunk.
    """

    def __init__(self, weight: torch.Tensor, *, bias: bool = False) -> None:
        super().__init__()
        self.fused = False
        self.compiled = False
        self.weight = weight
        self.bias = nn.Parameter(torch.empty(len(weight))) if bias else None

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.fused and torch.is_grad_enabled():
            x, targets = x.flatten(0, 1), targets.flatten()
            chunk = chunk_for(len(self.weight))
            total, *_ = vocabulary_loss(x, self.weight, self.bias, targets, chunk, self.compiled)
            return total / len(x)
        logits = aligned_logits(x, self.weight, self.bias)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


RESIDUAL = ("attention.out.weight", "mlp.down.weight", "mlp.experts.down", "mlp.shared.down.weight")
"""Weights whose outputs are added to the residual stream."""


def initialise(model: nn.Module, layers: int | None = None) -> None:
    """Initialises a model as GPT-2 (Radford et al. 2019, section 2.3) or BERT.

    Weights are drawn from N(0, 0.02). For GPT-2, outputs to the residual stream are scaled by 1/sqrt(2 layers).

    Args:
        layers: the number of layers for GPT-2, or None for BERT.
    """
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" not in name:
            residual = layers is not None and name.endswith(RESIDUAL)
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if layers and residual else 0.02)
