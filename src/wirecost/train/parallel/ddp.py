"""PyTorch's DistributedDataParallel, which all-reduces buckets of gradients during backward."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.groups import Groups
from wirecost.train.parallel.whole import WholeParameters
from wirecost.train.recorder import Recorder


class OverlappedDDP(WholeParameters):
    """DistributedDataParallel with a communication hook that records each bucket.

    The end of backward, in which it only waits, counts as communication.
    """

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        super().__init__(model)
        self.recorder = recorder
        self.group = groups.data
        self.ddp = DistributedDataParallel(
            model,
            process_group=self.group.process_group,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,  # buffers are constants (angles, distances), the same on every rank
            bucket_cap_mb=plan.bucket_bytes / 2**20,  # type: ignore[arg-type]
        )
        self.module: nn.Module = self.ddp

        # The hook has no annotations, because PyTorch compares them with classes, and here they would be strings.
        def hook(_state, bucket):  # noqa: ANN001, ANN202, RUF100
            return self._all_reduce(bucket.buffer())

        self.ddp.register_comm_hook(None, hook)
        self._last_launch: Any = None
        self._accumulates = groups.experiment.accumulation > 1

    def zero_grad(self) -> None:
        # Gradients are accumulated in their buckets. Without accumulation, copying a gradient to its bucket
        # moves half as many bytes as clearing the bucket and adding to it.
        self.ddp.zero_grad(set_to_none=not self._accumulates)

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last else self.ddp.no_sync()

    def after_backward(self) -> None:
        # The last bucket becomes ready when backward has computed all gradients. From then on, backward only
        # waits for the buckets in flight.
        if self._last_launch is not None:
            self.recorder.tail(Phase.BACKWARD, self._last_launch, Phase.GRAD_SYNC)
            self._last_launch = None

    def _all_reduce(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        call = self.recorder.launch("all_reduce", self.group.name, self.group.ranks, buffer.nbytes)
        self._last_launch = call.start
        work: Any = dist.all_reduce(buffer, group=self.group.process_group, async_op=True)
        return self.recorder.value_of(call, work, buffer)
