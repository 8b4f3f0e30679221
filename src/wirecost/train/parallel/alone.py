"""One data-parallel rank: gradients stay where autograd makes them.

A flat buffer would cost a pass that clears it and one that adds to it, for a collective that never happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


class Alone:
    pieces_over = None

    def __init__(self, model: nn.Module) -> None:
        self.module: nn.Module = model
        self.parameters = list(model.parameters())

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def after_backward(self) -> None:
        pass

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
