"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from wirecost.spec import LatentAttention
from wirecost.train.models.blocks import Attend, rotate


class MultiHeadLatentAttention(nn.Module):
    """Causal attention whose keys and values are computed from a vector of low rank.

    A part of each query has rotary positions. All heads share the part of the keys that it is multiplied with.

    Attributes:
        for_heads: applied to what all heads share before it is combined with a head's own part.
    """

    def __init__(self, hidden: int, heads: int, settings: LatentAttention) -> None:
        super().__init__()
        self.heads = heads
        self.settings = settings
        self.for_heads: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
        self.attend = Attend(causal=True)
        query = heads * (settings.nope_head_dim + settings.rope_head_dim)
        self.q_down = self.q_norm = None
        if settings.q_rank:
            self.q_down = nn.Linear(hidden, settings.q_rank, bias=False)
            self.q_norm = nn.RMSNorm(settings.q_rank, eps=1e-6)
        self.q = nn.Linear(settings.q_rank or hidden, query, bias=False)
        self.kv_down = nn.Linear(hidden, settings.kv_rank + settings.rope_head_dim, bias=False)
        self.kv_norm = nn.RMSNorm(settings.kv_rank, eps=1e-6)
        self.kv = nn.Linear(
            settings.kv_rank, heads * (settings.nope_head_dim + settings.value_head_dim), bias=False
        )
        self.out = nn.Linear(heads * settings.value_head_dim, hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        settings, heads = self.settings, self.heads
        nope, rope = settings.nope_head_dim, settings.rope_head_dim
        cosine, sine = (part[:, None] for part in angles)
        latent = x if self.q_down is None or self.q_norm is None else self.q_norm(self.q_down(x))
        # The rows are ordered by head, so that tensor parallelism gets whole heads from a contiguous slice of
        # them.
        q, q_rotary = self.q(latent).unflatten(-1, (heads, nope + rope)).split([nope, rope], -1)
        latent, k_rotary = self.kv_down(x).split([settings.kv_rank, rope], -1)
        k, v = self.kv(self.kv_norm(latent)).unflatten(-1, (heads, -1)).split([nope, settings.value_head_dim], -1)
        k_rotary = rotate(self.for_heads(k_rotary).unsqueeze(2), cosine, sine).expand(-1, -1, heads, -1)
        q = torch.cat([q, rotate(q_rotary, cosine, sine)], -1).transpose(1, 2)
        k = torch.cat([k, k_rotary], -1).transpose(1, 2)
        return self.out(self.attend(q, k, v.transpose(1, 2)).transpose(1, 2).flatten(2))
