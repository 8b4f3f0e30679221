"""Data parallelism beside expert parallelism: experts have fewer copies than the other parameters.

The gradients of an expert are summed over the ranks that hold it, which are the data-parallel ranks divided by the
expert-parallel degree. All others are summed over all data-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

import torch
from torch import nn

from wirecost.train.groups import Group, Groups
from wirecost.train.parallel.base import DataParallelStrategy


class Subset(nn.Module):
    """A model of which only some parameters are visible."""

    def __init__(self, model: nn.Module, is_member: Callable[[nn.Parameter], bool]) -> None:
        super().__init__()
        self.model = model
        self.is_member = is_member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the visible parameters with their names in the model."""
        for name, parameter in self.model.named_parameters(prefix, recurse, remove_duplicate):
            if self.is_member(parameter):
                yield name, parameter


def is_expert(parameter: nn.Parameter) -> bool:
    """Returns whether ranks of the expert group hold different parts of a parameter."""
    return getattr(parameter, "expert_part", False)


class ExpertStrategies:
    """A strategy for experts and one for all other parameters. It implements `DataParallelStrategy`.

    Attributes:
        dense, experts: the strategies.
        expert: the expert group.
    """

    pieces_over: Group | None = None

    def __init__(
        self, model: nn.Module, dense: DataParallelStrategy, experts: DataParallelStrategy, groups: Groups
    ) -> None:
        self.module = model
        self.dense = dense
        self.experts = experts
        self.expert = groups.expert

    @property
    def _both(self) -> tuple[DataParallelStrategy, DataParallelStrategy]:
        return self.dense, self.experts

    def zero_grad(self) -> None:
        for strategy in self._both:
            strategy.zero_grad()

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        with ExitStack() as stack:
            for strategy in self._both:
                stack.enter_context(strategy.micro_batch(last=last))
            yield

    def after_backward(self) -> None:
        for strategy in self._both:
            strategy.after_backward()

    def optimizer_parameters(self) -> Sequence[nn.Parameter]:
        return [*self.dense.optimizer_parameters(), *self.experts.optimizer_parameters()]

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        for strategy in self._both:
            yield from strategy.gradient_pieces()

    def after_step(self) -> None:
        for strategy in self._both:
            strategy.after_step()

    def complete_parameters(self) -> None:
        for strategy in self._both:
            strategy.complete_parameters()

    def carried(self) -> dict[str, torch.Tensor]:
        return {
            f"{part}.{name}": tensor
            for part, strategy in zip(("dense", "experts"), self._both, strict=True)
            for name, tensor in strategy.carried().items()
        }


class Pieces(Protocol):
    """The gradients of some parameters."""

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Yields them in pieces. See `DataParallelStrategy.gradient_pieces`."""
        ...


def parts_of(strategy: DataParallelStrategy) -> list[tuple[Pieces, list[Group]]]:
    """Returns the gradients of disjoint parameters, each with the groups over which its pieces are disjoint."""
    if parts := getattr(strategy, "parts", None):
        return parts
    if isinstance(strategy, ExpertStrategies):
        (dense,), (experts,) = parts_of(strategy.dense), parts_of(strategy.experts)
        return [dense, (experts[0], [*experts[1], strategy.expert])]
    return [(strategy, [] if strategy.pieces_over is None else [strategy.pieces_over])]
