"""All-reduce of every gradient after backward, over one flat buffer: nothing overlaps (as in study A)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn

from wirecost.breakdown import Phase
from wirecost.train.recorder import Recorder


class FlatAllReduce:
    """Gradients are views into one buffer, so that one collective moves them all without a copy."""

    def __init__(self, model: nn.Module, recorder: Recorder) -> None:
        self.module: nn.Module = model
        self.recorder = recorder
        parameters = list(model.parameters())
        self.buffer = torch.zeros(
            sum(p.numel() for p in parameters), dtype=parameters[0].dtype, device=parameters[0].device
        )
        offset = 0
        for parameter in parameters:
            parameter.grad = self.buffer[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()

    def zero_grad(self) -> None:
        self.buffer.zero_()

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext()

    def after_backward(self) -> None:
        ranks = dist.get_world_size()
        if ranks == 1:
            return
        with self.recorder.phase(Phase.GRAD_SYNC):
            call = self.recorder.launch("all_reduce", "data_parallel", ranks, self.buffer.nbytes)
            dist.all_reduce(self.buffer)
            self.recorder.ended(call)
