"""All-reduce of every gradient, in one flat buffer after backward, or bucket by bucket while backward goes on.

The flat one is study A's: nothing overlaps. The bucketed one is what PyTorch's DistributedDataParallel does (Li et
al. 2020, arXiv:2006.15704), from post-accumulate-grad hooks, so that forwards and backwards of several
micro-batches may interleave (pipelines) and that every byte is recorded when gradients are compressed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.parallel.buckets import Bucket, GradientsReady, into_buckets
from wirecost.train.parallel.chains import chains_for
from wirecost.train.parallel.traffic import traffic_for
from wirecost.train.parallel.whole import WholeParameters
from wirecost.train.recorder import Recorder


class BucketedAllReduce(WholeParameters):
    """Gradients are views into the buckets' buffer, which a collective moves as it is."""

    one_buffer = False

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        super().__init__(model)
        self.recorder = recorder
        self.overlap = plan.overlap and not self.one_buffer
        device, dtype = self.parameters[0].device, self.parameters[0].dtype
        self.buckets = into_buckets(self.parameters, None if self.one_buffer else plan.bucket_bytes)
        self.buffer = torch.zeros(sum(b.size for b in self.buckets), dtype=dtype, device=device)
        self.flat = self.buffer.split([b.size for b in self.buckets])
        for bucket in self.buckets:
            for parameter, view in bucket.views(self.flat[bucket.index]):
                parameter.grad = view
        self.traffic = traffic_for(plan, Communicator(groups.data, recorder), self.buckets, device)
        self.chains = chains_for(device, recorder)
        self.ready = GradientsReady(self.buckets, self._launch)

    def zero_grad(self) -> None:
        self.buffer.zero_()
        self.ready.reset()

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return self.ready.launching(last and self.overlap)

    def after_backward(self) -> None:
        with self.recorder.phase(Phase.GRAD_SYNC):
            self.ready.launch_rest()
            self.chains.finish()

    def carried(self) -> dict[str, torch.Tensor]:
        return self.traffic.carried()

    def _launch(self, bucket: Bucket) -> None:
        self.chains.start(self.traffic.all_reduce(self.flat[bucket.index], bucket), self.traffic.rounds)


class FlatAllReduce(BucketedAllReduce):
    """One buffer, one all-reduce, after backward.

    Where there is one micro-batch, gradients stay where backward makes them until the last is there, and are
    copied into the buffer then: clearing it and adding each to it would move twice as many bytes, in a kernel for
    every parameter. With several they would lie beside the buffer while the next one needs memory for activations.
    """

    one_buffer = True

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        super().__init__(model, plan, groups, recorder)
        self.accumulates = groups.experiment.accumulation > 1

    def zero_grad(self) -> None:
        if self.accumulates:
            super().zero_grad()
            return
        for parameter in self.parameters:
            parameter.grad = None
        self.ready.reset()

    def after_backward(self) -> None:
        if not self.accumulates:
            self._copy()
        super().after_backward()

    def _copy(self) -> None:
        with self.recorder.phase(Phase.BACKWARD), torch.no_grad():
            places, gradients = [], []
            for parameter, view in (pair for b in self.buckets for pair in b.views(self.flat[b.index])):
                if parameter.grad is None:
                    view.zero_()
                else:
                    places.append(view)
                    gradients.append(parameter.grad)
                parameter.grad = view
            torch._foreach_copy_(places, gradients)  # pyright: ignore[reportPrivateImportUsage]
