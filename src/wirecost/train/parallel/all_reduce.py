"""All-reduce of every gradient after backward, over one flat buffer: nothing overlaps (as in study A)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.recorder import Recorder


class FlatAllReduce:
    """Gradients are views into one buffer, so that one collective moves them all without a copy."""

    pieces_over = None

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        self.module: nn.Module = model
        self.communicator = Communicator(groups.data, recorder)
        self.parameters = list(model.parameters())
        self.buffer = torch.zeros(
            sum(p.numel() for p in self.parameters),
            dtype=self.parameters[0].dtype,
            device=self.parameters[0].device,
        )
        offset = 0
        for parameter in self.parameters:
            parameter.grad = self.buffer[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()

    def zero_grad(self) -> None:
        self.buffer.zero_()

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext()

    def after_backward(self) -> None:
        self.communicator.all_reduce(self.buffer, phase=Phase.GRAD_SYNC)

    def optimizer_parameters(self) -> list[nn.Parameter]:
        return self.parameters

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        for parameter in self.parameters:
            assert parameter.grad is not None
            yield parameter, parameter.grad

    def after_step(self) -> None:
        pass
