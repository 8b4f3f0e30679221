"""The common part of strategies in which every rank holds and steps all parameters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from wirecost.train.groups import Group


class WholeParameters:
    """The methods of `DataParallelStrategy` for the optimizer, without shards or communication."""

    pieces_over: Group | None = None

    def __init__(self, model: nn.Module) -> None:
        self.module: nn.Module = model
        self.parameters = list(model.parameters())

    def optimizer_parameters(self) -> list[nn.Parameter]:
        return self.parameters

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        for parameter in self.parameters:
            assert parameter.grad is not None, "a parameter took no part in the loss"
            yield parameter, parameter.grad

    def after_step(self) -> None:
        pass

    def complete_parameters(self) -> None:
        pass

    def carried(self) -> dict[str, torch.Tensor]:
        return {}
