"""Mixtures of experts: a router chooses a few experts for each token (Shazeer et al. 2017, arXiv:1701.06538).

Scores and their normalisation follow Mixtral (arXiv:2401.04088, section 2.1) and DeepSeek-V2 and V3
(arXiv:2405.04434, section 2.1.2; arXiv:2412.19437, section 2.1.2).

Functions that depend on the routed numbers of tokens aren't traced by torch.compile. This module is imported only
for mixtures of experts, because that takes a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from wirecost.spec import Workload
from wirecost.spec.workload import MixtureOfExperts
from wirecost.train.models.base import uncompiled
from wirecost.train.models.blocks import GatedMLP

Product = Callable[[torch.Tensor, torch.Tensor, list[int]], torch.Tensor]


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
            chosen = scores.topk(moe.top_k, dim=-1, sorted=False).indices
        weights = scores.gather(-1, chosen)
        if moe.normalised:
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-20)
        return weights * moe.scaling, chosen, scores


ROW_MULTIPLE = 8
"""Multiple to which the rows of each expert are padded for the grouped kernel. Its gradient by the weights needs
groups that start at 16 bytes."""


def product_of_each(x: torch.Tensor, weights: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """Multiplies consecutive rows with the transposed matrix of their expert, one product for each expert.

    Args:
        x: (rows, inputs).
        weights: (experts, outputs, inputs).
        counts: the number of rows of each expert.

    Returns:
        (rows, outputs).
    """
    parts = zip(x.split(counts), weights.unbind(0), strict=True)
    return torch.cat([functional.linear(rows, weight) for rows, weight in parts])


def grouped_product(x: torch.Tensor, weights: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """Does what `product_of_each` does in one kernel. Each count must be a positive multiple of
    `ROW_MULTIPLE`."""
    ends = torch.tensor(counts, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    offsets = ends.to(x.device, non_blocking=True)
    return torch._grouped_mm(x, weights.transpose(1, 2), offs=offsets)  # pyright: ignore[reportPrivateImportUsage]


def has_grouped_kernel(x: torch.Tensor, weights: torch.Tensor) -> bool:
    """Returns whether `grouped_product` is a kernel of the device: BF16, compute capability 9.0 and above."""
    return (
        x.is_cuda
        and x.dtype == torch.bfloat16
        and hasattr(torch, "_grouped_mm")
        and torch.cuda.get_device_capability(x.device) >= (9, 0)
        and not any(size % ROW_MULTIPLE for size in weights.shape[1:])
    )


def padded_places(counts: list[int], device: torch.device) -> tuple[torch.Tensor, list[int]]:
    """Returns the places of rows when those of each expert are padded, int64 (rows,), and the new counts."""
    padded = [max(1, -(-count // ROW_MULTIPLE)) * ROW_MULTIPLE for count in counts]
    additional = torch.tensor([0, *padded[:-1]]).cumsum(0) - torch.tensor([0, *counts[:-1]]).cumsum(0)
    places = torch.arange(sum(counts)) + additional.repeat_interleave(torch.tensor(counts))
    return places.to(device, non_blocking=True), padded


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

    def forward(self, x: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Applies each expert to its rows of `x`, (rows, hidden). `counts` are their numbers."""
        if not has_grouped_kernel(x, self.gate):
            return self._mlp(x, counts, product_of_each)
        places, padded = padded_places(counts, x.device)
        rows = x.new_zeros(sum(padded), x.shape[1]).index_copy(0, places, x)
        return self._mlp(rows, padded, grouped_product)[places]

    def _mlp(self, x: torch.Tensor, counts: list[int], product: Product) -> torch.Tensor:
        gated = functional.silu(product(x, self.gate, counts)) * product(x, self.up, counts)
        return product(gated, self.down, counts)


@dataclass(frozen=True)
class Copies:
    """The copies of tokens for their experts, ordered by expert.

    Attributes:
        tokens: the token of each copy, int64 (copies,). A place that no copy fills has any token.
        weights: the weight of each copy's output in FP32, (copies,). It is 0 in a place that no copy fills.
        counts: the number of copies for each expert.
    """

    tokens: torch.Tensor
    weights: torch.Tensor
    counts: list[int]


def order_copies(weights: torch.Tensor, chosen: torch.Tensor, moe: MixtureOfExperts) -> Copies:
    """Returns the copies of routed tokens by expert.

    With a capacity each expert has as many places as the capacity, and later copies are dropped (Lepikhin et al.
    2020, arXiv:2006.16668, section 2.2). Otherwise every copy has a place.

    Args:
        weights, chosen: what `Router` returns.
    """
    experts = chosen.flatten()
    order = experts.argsort(stable=True)
    tokens = order // moe.top_k
    sorted_weights = weights.flatten()[order]
    if moe.capacity_factor is None:
        if moe.routing == "balanced":
            # The host knows the counts and needn't wait for the device.
            whole, rest = divmod(len(experts), moe.experts)
            counts = [whole + (expert < rest) for expert in range(moe.experts)]
        else:
            counts = experts.bincount(minlength=moe.experts).tolist()
        return Copies(tokens, sorted_weights, counts)
    places = capacity(len(chosen), moe)
    sizes = experts.bincount(minlength=moe.experts)
    firsts = sizes.cumsum(0) - sizes
    offsets = torch.arange(places, device=experts.device)
    filled = offsets < sizes[:, None]
    index = (firsts[:, None] + offsets).clamp(max=len(order) - 1)
    return Copies(
        tokens[index].flatten(),
        torch.where(filled, sorted_weights[index], 0).flatten(),
        [places] * moe.experts,
    )


def capacity(tokens: int, moe: MixtureOfExperts) -> int:
    """Returns the number of copies that an expert takes from one rank's micro-batch."""
    assert moe.capacity_factor is not None
    return math.ceil(moe.capacity_factor * tokens * moe.top_k / moe.experts)


class Exchange(Protocol):
    """Brings copies to their experts and their outputs back."""

    def __call__(self, rows: torch.Tensor, counts: list[int], experts: nn.Module) -> torch.Tensor:
        """Returns the outputs of the experts for rows, (copies, hidden), that are ordered by expert."""
        ...


def here(rows: torch.Tensor, counts: list[int], experts: nn.Module) -> torch.Tensor:
    """Applies experts that are all on this rank. It implements `Exchange`."""
    return experts(rows, counts)


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
        copies = functional.one_hot(chosen, moe.experts).sum((0, 1)) / chosen.numel()
        copies, shares = self.mean_over_ranks(torch.stack([copies, scores.mean(0)]))
        return moe.aux_loss * moe.experts * (copies * shares).sum()

    @uncompiled
    def mix(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Returns the weighted sums of the outputs of each token's experts, (batch, sequence, hidden)."""
        flat = x.flatten(0, 1)
        copies = order_copies(weights, chosen, self.moe)
        outputs = self.exchange(flat[copies.tokens], copies.counts, self.experts)
        weighted = outputs * copies.weights[:, None].to(outputs.dtype)
        return torch.zeros_like(flat).index_add(0, copies.tokens, weighted).view_as(x)
