"""PyTorch's DistributedDataParallel: buckets of gradients are all-reduced while backward goes on."""

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
    """A communication hook times each bucket; the tail of backward that only waits counts as communication."""

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        super().__init__(model)
        self.recorder = recorder
        self.group = groups.data
        self.ddp = DistributedDataParallel(
            model,
            process_group=self.group.process_group,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,  # constants (angles, distances), the same on every rank
            bucket_cap_mb=plan.bucket_bytes / 2**20,  # type: ignore[arg-type]
        )
        self.module: nn.Module = self.ddp

        # PyTorch compares a hook's annotations with its classes, not with their names: so none here.
        def hook(_state, bucket):  # noqa: ANN001, ANN202, RUF100
            return self._all_reduce(bucket.buffer())

        self.ddp.register_comm_hook(None, hook)
        self._last_launch: Any = None
        self._accumulates = groups.experiment.accumulation > 1

    def zero_grad(self) -> None:
        # Gradients are added up in their buckets; where there is nothing to add, copying one into its bucket moves
        # half as many bytes as clearing the bucket and adding to it.
        self.ddp.zero_grad(set_to_none=not self._accumulates)

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last else self.ddp.no_sync()

    def after_backward(self) -> None:
        # The last bucket becomes ready when backward has no gradient left to compute; from then on
        # backward only waits for the buckets in flight.
        if self._last_launch is not None:
            self.recorder.tail(Phase.BACKWARD, self._last_launch, Phase.GRAD_SYNC)
            self._last_launch = None

    def _all_reduce(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        call = self.recorder.launch("all_reduce", self.group.name, self.group.ranks, buffer.nbytes)
        self._last_launch = call.start
        work: Any = dist.all_reduce(buffer, group=self.group.process_group, async_op=True)
        return self.recorder.value_of(call, work, buffer)
