"""Permutations of rows: copies of tokens into slots that are ordered by expert, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Slots:
    """The places to which copies of tokens go.

    Attributes:
        source: the copy in each slot, int64 (slots,), or -1 in an empty slot.
        place: the slot of each copy, int64 (copies,), or -1 of a copy that is dropped.
        full: whether no index is -1.
    """

    source: torch.Tensor
    place: torch.Tensor
    full: bool

    @property
    def reverse(self) -> Slots:
        """The way back, on which slots are copies and copies are slots."""
        return Slots(self.place, self.source, self.full)


def dropless_slots(expert: torch.Tensor, experts: int) -> tuple[Slots, torch.Tensor]:
    """Returns slots for all copies in the order of their experts, and the number of copies of each expert.

    Args:
        expert: the expert of each copy, int64 (copies,).
    """
    source = expert.argsort(stable=True)
    place = torch.empty_like(source)
    place[source] = torch.arange(len(source), device=source.device)
    return Slots(source, place, full=True), counts_of(expert, experts)


def capacity_slots(expert: torch.Tensor, experts: int, capacity: int) -> Slots:
    """Returns `capacity` slots for each expert. The first copies get them, and later ones are dropped.

    Args:
        expert: the expert of each copy, int64 (copies,).
    """
    order = expert.argsort(stable=True)
    counts = counts_of(expert, experts)
    number = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[expert[order]]
    place = torch.empty_like(order)
    place[order] = torch.where(number < capacity, expert[order] * capacity + number, -1)
    return Slots(_sources(place, experts * capacity), place, full=False)


def aligned_slots(counts: torch.Tensor, rows: int, alignment: int) -> tuple[Slots, torch.Tensor]:
    """Returns slots in which the rows of each expert start at a multiple of `alignment`, and the end of each
    expert's slots, int32 (experts,).

    The number of slots depends only on the shapes, so the host needn't wait for the device.

    Args:
        counts: the number of rows of each expert, int64 (experts,).
        rows: the sum of `counts`.
    """
    sizes = (counts + alignment - 1) // alignment * alignment
    ends = sizes.cumsum(0)
    expert = torch.arange(len(counts), device=counts.device).repeat_interleave(counts, output_size=rows)
    number = torch.arange(rows, device=counts.device) - (counts.cumsum(0) - counts)[expert]
    place = (ends - sizes)[expert] + number
    source = _sources(place, rows + alignment * len(counts))
    return Slots(source, place, full=False), ends.to(torch.int32)


def counts_of(expert: torch.Tensor, experts: int) -> torch.Tensor:
    """Returns the number of copies of each expert, int64 (experts,). The host doesn't wait for the device."""
    zeros = torch.zeros(experts, dtype=torch.int64, device=expert.device)
    return zeros.scatter_add_(0, expert, torch.ones_like(expert))


def _sources(place: torch.Tensor, slots: int) -> torch.Tensor:
    source = torch.full((slots + 1,), -1, device=place.device)
    source[torch.where(place < 0, slots, place)] = torch.arange(len(place), device=place.device)
    return source[:slots]


def _pick(x: torch.Tensor, index: torch.Tensor, full: bool) -> torch.Tensor:
    """Returns the rows of `x`, or zeros for the index -1."""
    if full:
        return x.index_select(0, index)
    if not len(x):
        return x.new_zeros(len(index), *x.shape[1:])
    return x.index_select(0, index.clamp(min=0)).masked_fill_((index < 0).unsqueeze(-1), 0)


class _Move(torch.autograd.Function):
    """Both ways are gathers. Autograd's own backward of a gather would add with atomic operations."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, slots: Slots, copies: int) -> torch.Tensor:
        ctx.slots, ctx.copies = slots, copies
        source = slots.source if copies == 1 else slots.source.div(copies, rounding_mode="floor")
        return _pick(x, source, slots.full)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[override]
        moved = _pick(gradient, ctx.slots.place, ctx.slots.full)
        return moved if ctx.copies == 1 else moved.unflatten(0, (-1, ctx.copies)).sum(1), None, None


def move(x: torch.Tensor, slots: Slots, copies: int = 1) -> torch.Tensor:
    """Returns the copies of rows in their slots, (slots, columns). Empty slots are zero.

    Args:
        x: (rows, columns).
        copies: number of copies of each row. Copy c is of row c // copies.
    """
    return _Move.apply(x, slots, copies)  # type: ignore[return-value]
