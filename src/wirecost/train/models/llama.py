"""Llama: rotary positions, RMSNorm, SwiGLU, grouped-query attention (Touvron et al. 2023, arXiv:2302.13971 and
arXiv:2307.09288; Llama 3, arXiv:2407.21783)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from wirecost.spec import Workload
from wirecost.train.models.base import Batch, Model, State, Unit
from wirecost.train.models.blocks import Attend, GatedMLP, VocabularyLoss, initialise, rotate
from wirecost.train.models.latent import MultiHeadLatentAttention

ROTARY_BASE = 500_000.0
"""The base of Llama 3. It affects what is learned, but not the cost of training."""


class Rotary(nn.Module):
    """Rotary positions, which rotate pairs of a head's elements by angles that grow with the position (Su et al.,
    arXiv:2104.09864)."""

    cosine: torch.Tensor
    sine: torch.Tensor

    def __init__(self, length: int, head_size: int) -> None:
        super().__init__()
        rates = ROTARY_BASE ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)
        # Angles need FP32. For their cosines and sines 16 bits suffice, to which the model converts its buffers.
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, length: int, positions: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns cosines and sines, each (length, head_size / 2).

        Args:
            positions: positions in the sequence, (length,), or None for the first `length` positions.
        """
        if positions is None:
            return self.cosine[:length], self.sine[:length]
        return self.cosine[positions], self.sine[positions]


class GroupedAttention(nn.Module):
    """Causal attention in which `heads / kv_heads` query heads share keys and values (Ainslie et al. 2023)."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, head_size: int) -> None:
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_size = head_size
        self.attend = Attend(causal=True)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * head_size, bias=False)
        self.out = nn.Linear(heads * head_size, hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        shared = self.heads // self.kv_heads
        # The rows are ordered by group, so that tensor parallelism gets whole groups from a contiguous slice of
        # them.
        qkv = self.qkv(x).unflatten(-1, (self.kv_heads, shared + 2, self.head_size))
        cosine, sine = (part[:, None, None] for part in angles)
        # Backward joins the gradients of what `split` splits in one copy.
        q, k, v = qkv.split([shared, 1, 1], dim=-2)
        q, k = (rotate(part, cosine, sine).flatten(2, 3).transpose(1, 2) for part in (q, k))
        v = v.flatten(2, 3).transpose(1, 2)
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class LlamaEmbedding(Unit):
    """The embedding of the tokens.

    If a loss balances experts, states have a second tensor: the sum of this loss over the layers, an FP32 scalar.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.tokens = nn.Embedding(workload.vocab_size, workload.hidden)
        moe = workload.mixture_of_experts
        self.balances = moe is not None and moe.aux_loss > 0

    def forward(self, state: State, batch: Batch) -> State:
        x = self.tokens(batch["inputs"])
        # The zero depends on `x`, because a pipeline computes a gradient for every tensor of a state.
        return (x, 0 * x.flatten()[0].float()) if self.balances else (x,)


class LlamaLayer(Unit):
    """A decoder layer.

    Args:
        rotary: the same object in every layer.
        mlp: the MLP, over (batch, sequence, hidden).
    """

    layers = 1

    def __init__(self, workload: Workload, rotary: Rotary, mlp: nn.Module) -> None:
        super().__init__()
        self.rotary = rotary
        self.attention_norm = _norm(workload)
        self.attention = _attention(workload)
        self.mlp_norm = _norm(workload)
        self.mlp = mlp

    def forward(self, state: State, batch: Batch) -> State:
        x, *aux_losses = state
        angles = self.rotary(batch["inputs"].shape[1], batch.get("positions"))
        x = x + self.attention(self.attention_norm(x), angles)
        mlp: Any = self.mlp
        if not aux_losses or isinstance(mlp, GatedMLP):
            return (x + mlp(self.mlp_norm(x)), *aux_losses)
        y, aux_loss = mlp.balanced(self.mlp_norm(x))
        return x + y, aux_losses[0] + aux_loss


class LlamaHead(Unit):
    """The last norm, and the mean cross-entropy of the next token, plus the loss that balances experts.

    The output weights may be those of the embedding.
    """

    def __init__(self, workload: Workload, weight: torch.Tensor) -> None:
        super().__init__()
        self.norm = _norm(workload)
        self.vocabulary = VocabularyLoss(weight)

    def forward(self, state: State, batch: Batch) -> State:
        x, *aux_losses = state
        loss = self.vocabulary(self.norm(x), batch["targets"])
        return (loss + aux_losses[0] if aux_losses else loss,)


def llama(workload: Workload) -> Model:
    """Returns an initialised Llama."""
    embedding = LlamaEmbedding(workload)
    latent = workload.latent_attention
    rotary = Rotary(workload.sequence_length, latent.rope_head_dim if latent else workload.head_size)
    weight = embedding.tokens.weight
    if not workload.tied_embeddings:
        weight = nn.Parameter(torch.empty_like(weight))
    layers = [LlamaLayer(workload, rotary, _mlp(workload, number)) for number in range(workload.layers)]
    model = Model([embedding, *layers, LlamaHead(workload, weight)])
    initialise(model, workload.layers)
    return model


def _attention(workload: Workload) -> nn.Module:
    if workload.latent_attention is not None:
        return MultiHeadLatentAttention(workload.hidden, workload.heads, workload.latent_attention)
    return GroupedAttention(workload.hidden, workload.heads, workload.key_value_heads, workload.head_size)


def _mlp(workload: Workload, layer: int) -> nn.Module:
    """Returns the MLP of a layer: a mixture of experts if the workload has one and this isn't a dense layer."""
    moe = workload.mixture_of_experts
    if moe is None or layer < moe.dense_layers:
        return GatedMLP(workload.hidden, workload.ffn)
    # The import loads PyTorch's compiler, which takes a second that other models don't need.
    from wirecost.train.models.experts import MixtureMLP

    return MixtureMLP(workload)


def _norm(workload: Workload) -> nn.RMSNorm:
    return nn.RMSNorm(workload.hidden, eps=1e-5)
