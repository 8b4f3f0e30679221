"""All-reduce of every gradient, in one flat buffer after backward, or bucket by bucket while backward goes on.

The flat one is study A's: nothing overlaps. The bucketed one is what PyTorch's DistributedDataParallel does (Li et
al. 2020, arXiv:2006.15704), from post-accumulate-grad hooks, so that forwards and backwards of several
micro-batches may interleave (pipelines), that every byte is recorded when gradients are compressed, and that what
is compiled isn't cut at buckets.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.parallel.buckets import Bucket, into_buckets
from wirecost.train.parallel.chains import chains_for
from wirecost.train.parallel.gradients import GradientsReady, Places
from wirecost.train.parallel.traffic import traffic_for
from wirecost.train.parallel.whole import WholeParameters
from wirecost.train.recorder import Recorder


class BucketedAllReduce(WholeParameters):
    """Gradients come into the buckets' buffer, which a collective moves as it is."""

    one_buffer = False

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        super().__init__(model)
        self.recorder = recorder
        self.overlap = plan.overlap and not self.one_buffer
        device, dtype = self.parameters[0].device, self.parameters[0].dtype
        self.buckets = into_buckets(self.parameters, None if self.one_buffer else plan.bucket_bytes)
        buffer = torch.empty(sum(b.size for b in self.buckets), dtype=dtype, device=device)
        self.flat = buffer.split([b.size for b in self.buckets])
        self.places = Places(dict(pair for b in self.buckets for pair in b.views(self.flat[b.index])))
        self.traffic = traffic_for(plan, Communicator(groups.data, recorder), self.buckets, device)
        self.chains = chains_for(device, recorder)
        self.ready = GradientsReady(self.buckets, self._launch, self.places)

    def zero_grad(self) -> None:
        self.ready.reset()

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return self.ready.launching(last and self.overlap)

    def after_backward(self) -> None:
        with self.recorder.phase(Phase.GRAD_SYNC):
            self.ready.launch_rest()
            self.chains.finish()
        for parameter, view in self.places.views.items():
            parameter.grad = view

    def carried(self) -> dict[str, torch.Tensor]:
        return self.traffic.carried()

    def _launch(self, bucket: Bucket) -> None:
        self.chains.start(self.traffic.all_reduce(self.flat[bucket.index], bucket), self.traffic.rounds)


class FlatAllReduce(BucketedAllReduce):
    """One buffer, one all-reduce, after backward."""

    one_buffer = True
