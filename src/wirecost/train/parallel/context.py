"""Context parallelism: each rank has a part of every sequence, and gathers the keys and values of the whole
sequence.

It uses an all-gather instead of a ring, as in the training of Llama 3 (arXiv:2407.21783, section 3.3.2). Each
sequence has 2n chunks. Rank i has the chunks i and 2n-1-i, so causal attention costs the same on every rank.
PyTorch's `context_parallel` (2.13) has no attention for CPUs, and its communication can't be recorded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.models.blocks import Attend
from wirecost.train.parallel.base import uncompiled
from wirecost.train.recorder import Recorder

PHASE = Phase.CONTEXT_PARALLEL


class _Gather(torch.autograd.Function):
    """Gathers `x` of all n ranks to (n, ...). Backward sums the ranks' gradients of this rank's part."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, communicator: Communicator) -> torch.Tensor:
        ctx.communicator = communicator
        gathered = x.new_empty((communicator.size, *x.shape))
        communicator.all_gather(gathered.view(-1), x.contiguous().view(-1), phase=PHASE)
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        part = torch.empty_like(gradient[0], memory_format=torch.contiguous_format)
        ctx.communicator.reduce_scatter(part.view(-1), gradient.contiguous().view(-1), phase=PHASE)
        return part, None


class ContextAttend(nn.Module):
    """Causal attention of this rank's two chunks to all keys and values up to each chunk's end."""

    def __init__(self, attend: Attend, communicator: Communicator) -> None:
        super().__init__()
        self.scale = attend.scale
        self.communicator = communicator

    @uncompiled
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, score_bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        assert score_bias is None
        # This import loads PyTorch's compiler, which takes a second that ranks without context parallelism
        # don't need.
        from torch.nn.attention.bias import causal_lower_right

        k, v = self._in_order(torch.stack([k, v]))
        shared = q.shape[1] // k.shape[1]
        if shared > 1:
            k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        ranks, index = self.communicator.size, self.communicator.group.index
        chunk = q.shape[2] // 2
        attended = [
            functional.scaled_dot_product_attention(
                part,
                k[:, :, :end],
                v[:, :, :end],
                attn_mask=causal_lower_right(chunk, end),  # type: ignore[arg-type]
                scale=self.scale,
            )
            for part, end in zip(q.chunk(2, 2), ((index + 1) * chunk, (2 * ranks - index) * chunk), strict=True)
        ]
        return torch.cat(attended, 2)

    def _in_order(self, x: torch.Tensor) -> torch.Tensor:
        """Gathers (..., sequence / n, head_size) to (..., sequence, head_size) in the order of the sequence."""
        halves = _Gather.apply(x, self.communicator).unflatten(-2, (2, -1))  # type: ignore[union-attr]
        first, second = halves.unbind(-3)
        chunks = [*first.unbind(0), *second.flip(0).unbind(0)]
        return torch.cat(chunks, -2)


def apply_context_parallel(model: nn.Module, groups: Groups, recorder: Recorder) -> None:
    """Makes every attention of a model attend to the whole sequence, in place."""
    if groups.context.size == 1:
        return
    communicator = Communicator(groups.context, recorder)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Attend):
                setattr(module, name, ContextAttend(child, communicator))
