"""Buckets: parameters whose gradients travel together, side by side in one flat tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

ALIGNMENT = 64
"""Elements; Megatron-LM's. Where parameters lie in the buffer, each starts at a multiple of it, which keeps
matrix products on their fast path."""


@dataclass(frozen=True)
class Bucket:
    """`parameters` start at `starts` in a flat tensor of `size` elements; what lies between them is padding."""

    index: int
    parameters: tuple[nn.Parameter, ...]
    starts: tuple[int, ...]
    size: int

    def views(self, flat: torch.Tensor) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Every parameter with its part of a flat tensor, in its own shape."""
        for parameter, start in zip(self.parameters, self.starts, strict=True):
            yield parameter, flat[start : start + parameter.numel()].view_as(parameter)

    def gaps(self, flat: torch.Tensor) -> Iterator[torch.Tensor]:
        """The padding."""
        ends = [start + p.numel() for p, start in zip(self.parameters, self.starts, strict=True)]
        for end, start in zip(ends, [*self.starts[1:], self.size], strict=True):
            if start > end:
                yield flat[end:start]


def into_buckets(
    parameters: Sequence[nn.Parameter], bucket_bytes: int | None, *, alignment: int = 1, multiple_of: int = 1
) -> list[Bucket]:
    """Deals parameters out in the reverse of their order, as backward makes their gradients.

    A bucket is full as soon as it holds `bucket_bytes`; None makes one bucket. Its size is a multiple of
    `multiple_of`. A parameter that two pipeline stages share (attribute `tied_across_stages`) has a bucket of
    its own, so that it is cut the same way on both (as in Megatron-LM).
    """
    groups: list[list[nn.Parameter]] = []
    room = False
    for parameter in reversed(parameters):
        alone = getattr(parameter, "tied_across_stages", False)
        if alone or not room:
            groups.append([])
        groups[-1].append(parameter)
        held = sum(p.numel() * p.element_size() for p in groups[-1])
        room = not alone and (bucket_bytes is None or held < bucket_bytes)
    return [_bucket(index, group, alignment, multiple_of) for index, group in enumerate(groups)]


def _bucket(index: int, parameters: list[nn.Parameter], alignment: int, multiple_of: int) -> Bucket:
    starts, end = [], 0
    for parameter in parameters:
        starts.append(_up(end, alignment))
        end = starts[-1] + parameter.numel()
    return Bucket(index, tuple(parameters), tuple(starts), _up(end, multiple_of))


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
