"""Mixtures of experts: a router chooses a few experts for each token (Shazeer et al. 2017, arXiv:1701.06538).

Scores and their normalisation follow Mixtral (arXiv:2401.04088, section 2.1) and DeepSeek-V2 and V3
(arXiv:2405.04434, section 2.1.2; arXiv:2412.19437, section 2.1.2).

Functions that depend on the routed numbers of tokens aren't traced by torch.compile. This module is imported only
for mixtures of experts, because that takes a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from wirecost.spec import Workload
from wirecost.spec.workload import MixtureOfExperts
from wirecost.train.models.base import uncompiled
from wirecost.train.models.blocks import GatedMLP
from wirecost.train.models.grouped import Linear, apply_grouped
from wirecost.train.models.slots import Slots, capacity_slots, counts_of, dropless_slots, move


class Router(nn.Module):
    """Scores the experts in FP32, and chooses `top_k` of them for each token."""

    def __init__(self, hidden: int, moe: MixtureOfExperts) -> None:
        super().__init__()
        self.moe = moe
        self.weight = nn.Parameter(torch.empty(moe.experts, hidden))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Chooses experts for tokens, (tokens, hidden).

        Returns:
            The weights of the chosen experts in FP32, and the experts, int64; both (tokens, top_k). The scores of
            all experts in FP32, (tokens, experts).
        """
        moe = self.moe
        logits = functional.linear(x, self.weight).float()
        scores = logits.softmax(-1) if moe.scoring == "softmax" else logits.sigmoid()
        if moe.routing == "balanced":
            # Each expert gets equally many copies, whatever the scores. These still weigh the experts' outputs.
            copies = torch.arange(len(x) * moe.top_k, device=x.device)
            chosen = (copies % moe.experts).view(len(x), moe.top_k)
        else:
            chosen = self._in_best_groups(scores.detach()).topk(moe.top_k, dim=-1, sorted=False).indices
        weights = scores.gather(-1, chosen)
        if moe.normalised:
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-20)
        return weights * moe.scaling, chosen, scores

    def _in_best_groups(self, scores: torch.Tensor) -> torch.Tensor:
        """Returns the scores, (tokens, experts), with those of other groups than each token's best below all."""
        moe = self.moe
        if moe.top_k_groups == moe.groups:
            return scores
        grouped = scores.unflatten(-1, (moe.groups, -1))
        best_of_each = min(1 if moe.scoring == "softmax" else 2, grouped.shape[-1])
        quality = grouped.topk(best_of_each, -1).values.sum(-1)
        others = torch.ones_like(quality, dtype=torch.bool)
        others.scatter_(-1, quality.topk(moe.top_k_groups, -1).indices, False)
        return grouped.masked_fill(others.unsqueeze(-1), -math.inf).flatten(-2)


class Experts(nn.Module):
    """SwiGLU MLPs (Shazeer 2020, arXiv:2002.05202) with stacked weights, (experts, outputs, inputs).

    Attributes:
        divided: whether other ranks have the other experts.
    """

    divided = False

    def __init__(self, hidden: int, ffn_hidden: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(experts, ffn_hidden, hidden))
        self.up = nn.Parameter(torch.empty(experts, ffn_hidden, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, ffn_hidden))

    def forward(self, x: torch.Tensor, counts: torch.Tensor, equal: int | None) -> torch.Tensor:
        """Applies each expert to its rows of `x`, (rows, hidden).

        Args:
            counts: the number of rows of each expert, int64 (experts,).
            equal: the number of rows of every expert, if it is known on the host.
        """
        return apply_grouped(self._mlp, x, (self.gate, self.up, self.down), counts, equal)

    def _mlp(self, x: torch.Tensor, linear: Linear) -> torch.Tensor:
        return linear(functional.silu(linear(x, self.gate)) * linear(x, self.up), self.down)


def capacity(tokens: int, moe: MixtureOfExperts) -> int:
    """Returns the number of copies that an expert takes from one rank's micro-batch. A token has one copy at most
    for each expert, so that more places than tokens would stay empty."""
    assert moe.capacity_factor is not None
    return min(tokens, math.ceil(moe.capacity_factor * tokens * moe.top_k / moe.experts))


def slots_of(chosen: torch.Tensor, moe: MixtureOfExperts) -> tuple[Slots, torch.Tensor, int | None]:
    """Puts the copies of tokens into slots that are ordered by expert.

    With a capacity each expert has as many slots as the capacity, and later copies are dropped (Lepikhin et al.
    2020, arXiv:2006.16668, section 2.2). Otherwise every copy has a slot.

    Args:
        chosen: the experts of each token, int64 (tokens, top_k). Copy c is of token c // top_k.

    Returns:
        The slots, the number of slots of each expert, int64 (experts,), and this number if all experts have the
        same and the host knows it.
    """
    if moe.capacity_factor is None:
        slots, counts = dropless_slots(chosen.flatten(), moe.experts)
        balanced = moe.routing == "balanced" and chosen.numel() % moe.experts == 0
        return slots, counts, chosen.numel() // moe.experts if balanced else None
    size = capacity(len(chosen), moe)
    counts = torch.full((moe.experts,), size, device=chosen.device)
    return capacity_slots(chosen.flatten(), moe.experts, size), counts, size


class Exchange(Protocol):
    """Brings copies to their experts and their outputs back."""

    def __call__(
        self, rows: torch.Tensor, counts: torch.Tensor, equal: int | None, experts: nn.Module
    ) -> torch.Tensor:
        """Returns the outputs of the experts for rows, (copies, hidden), that are ordered by expert.

        Args:
            counts, equal: see `slots_of`.
        """
        ...


def here(rows: torch.Tensor, counts: torch.Tensor, equal: int | None, experts: nn.Module) -> torch.Tensor:
    """Applies experts that are all on this rank. It implements `Exchange`."""
    return experts(rows, counts, equal)


class MixtureMLP(nn.Module):
    """The MLP of a layer with a mixture of experts, over (batch, sequence, hidden).

    Attributes:
        exchange: brings copies to their experts.
        mean_over_ranks: returns the mean of a tensor over the ranks that have other tokens of the same sequences.
        shared: the experts that every token uses, as one MLP, or None.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        moe = workload.mixture_of_experts
        assert moe is not None
        ffn = moe.expert_ffn_hidden or workload.ffn
        self.moe = moe
        self.router = Router(workload.hidden, moe)
        self.experts = Experts(workload.hidden, ffn, moe.experts)
        self.shared = GatedMLP(workload.hidden, moe.shared_experts * ffn) if moe.shared_experts else None
        self.exchange: Exchange = here
        self.mean_over_ranks: Callable[[torch.Tensor], torch.Tensor] = lambda x: x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.balanced(x)[0]

    def balanced(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the outputs, (batch, sequence, hidden), and the loss that balances the experts, an FP32 scalar,
        or None if the mixture has none."""
        weights, chosen, scores = self.router(x.flatten(0, 1))
        y = self.mix(x, weights, chosen)
        if self.shared is not None:
            y = y + self.shared(x)
        return y, self._aux_loss(chosen, scores) if self.moe.aux_loss else None

    def _aux_loss(self, chosen: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns the coefficient times experts x the sum over the experts of (share of the copies x mean share of
        the scores), which is 1 if both are balanced."""
        moe = self.moe
        if moe.scoring == "sigmoid":
            scores = scores / scores.sum(-1, keepdim=True)
        copies = counts_of(chosen.flatten(), moe.experts) / chosen.numel()
        copies, shares = self.mean_over_ranks(torch.stack([copies, scores.mean(0)]))
        return moe.aux_loss * moe.experts * (copies * shares).sum()

    @uncompiled
    def mix(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Returns the weighted sums of the outputs of each token's experts, (batch, sequence, hidden)."""
        slots, counts, equal = slots_of(chosen, self.moe)
        rows = move(x.flatten(0, 1), slots, self.moe.top_k)
        outputs = self.exchange(rows, counts, equal, self.experts)
        copies = move(outputs, slots.reverse).view(*chosen.shape, -1)
        # A product of matrices sums in FP32, and doesn't store the weighted copies.
        return weights.to(copies.dtype).unsqueeze(1).bmm(copies).view_as(x)
