"""Execution without a pipeline: forward and backward of one micro-batch after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wirecost.breakdown import Phase
from wirecost.train.models import Batch
from wirecost.train.parallel.base import DataParallelStrategy
from wirecost.train.recorder import Recorder


class PlainExecution:
    """Runs micro-batches one after another. It implements `Execution`."""

    def __init__(self, strategy: DataParallelStrategy, recorder: Recorder) -> None:
        self.strategy = strategy
        self.recorder = recorder

    def run(self, micro_batches: Sequence[Batch], loss_factor: float | torch.Tensor) -> torch.Tensor:
        losses = []
        for number, batch in enumerate(micro_batches):
            with self.strategy.micro_batch(last=number == len(micro_batches) - 1):
                with self.recorder.phase(Phase.FORWARD):
                    loss = self.strategy.module(batch)
                with self.recorder.phase(Phase.BACKWARD):
                    (loss * loss_factor).backward()
                losses.append(loss.detach())
        return torch.stack(losses).mean()

    @torch.no_grad()
    def evaluate(self, micro_batches: Sequence[Batch]) -> torch.Tensor:
        return torch.stack([self.strategy.module(batch) for batch in micro_batches]).mean()
