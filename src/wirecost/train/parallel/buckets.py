"""Buckets of parameters, whose gradients are communicated together in one flat tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

ALIGNMENT = 64
"""Alignment of parameters in a flat buffer in elements, as in Megatron-LM. It keeps matrix products on their fast
path."""


@dataclass(frozen=True)
class Bucket:
    """Parameters in a flat tensor.

    Attributes:
        starts: the first element of each parameter in the flat tensor. Padding may lie between parameters.
        size: the number of elements of the flat tensor.
    """

    index: int
    parameters: tuple[nn.Parameter, ...]
    starts: tuple[int, ...]
    size: int

    def views(self, flat: torch.Tensor) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Yields every parameter with its part of a flat tensor, (size,), in the parameter's shape."""
        for parameter, start in zip(self.parameters, self.starts, strict=True):
            yield parameter, flat[start : start + parameter.numel()].view_as(parameter)

    def gaps(self, flat: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yields the padding of a flat tensor, (size,)."""
        ends = [start + p.numel() for p, start in zip(self.parameters, self.starts, strict=True)]
        for end, start in zip(ends, [*self.starts[1:], self.size], strict=True):
            if start > end:
                yield flat[end:start]


def into_buckets(
    parameters: Sequence[nn.Parameter], bucket_bytes: int | None, *, alignment: int = 1, multiple_of: int = 1
) -> list[Bucket]:
    """Assigns parameters to buckets in reverse order, which is the order in which backward creates their
    gradients.

    A parameter that two pipeline stages share (attribute `tied_across_stages`) has its own bucket, so that it
    is split in the same way on both, as in Megatron-LM.

    Args:
        bucket_bytes: a bucket is full when it has at least this size. None creates one bucket.
        alignment: each parameter starts at a multiple of this number of elements.
        multiple_of: the size of a bucket is a multiple of this number of elements.
    """
    groups: list[list[nn.Parameter]] = []
    room = False
    for parameter in reversed(parameters):
        alone = getattr(parameter, "tied_across_stages", False)
        if alone or not room:
            groups.append([])
        groups[-1].append(parameter)
        filled_bytes = sum(p.numel() * p.element_size() for p in groups[-1])
        room = not alone and (bucket_bytes is None or filled_bytes < bucket_bytes)
    return [_bucket(index, group, alignment, multiple_of) for index, group in enumerate(groups)]


def _bucket(index: int, parameters: list[nn.Parameter], alignment: int, multiple_of: int) -> Bucket:
    starts, end = [], 0
    for parameter in parameters:
        starts.append(_round_up(end, alignment))
        end = starts[-1] + parameter.numel()
    return Bucket(index, tuple(parameters), tuple(starts), _round_up(end, multiple_of))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
