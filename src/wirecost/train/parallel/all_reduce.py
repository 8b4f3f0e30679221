"""All-reduce of the gradients in one flat buffer after backward, or in buckets during backward.

The flat all-reduce never overlaps with computation, as in the interconnect study (doi 10.1109/MM.2024.3360081).
The bucketed one does what PyTorch's DistributedDataParallel does (Li et al. 2020, arXiv:2006.15704), but with
post-accumulate-grad hooks. With these, the micro-batches of a pipeline may interleave, every byte of compressed
gradients is recorded, and compiled code isn't split at buckets.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.spec import GradientTraffic, Plan
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.parallel.buckets import Bucket, into_buckets
from wirecost.train.parallel.chains import chains_for
from wirecost.train.parallel.gradients import GradientsReady, Places
from wirecost.train.parallel.traffic import traffic_for
from wirecost.train.parallel.traffic.int8 import BLOCK
from wirecost.train.parallel.whole import WholeParameters
from wirecost.train.recorder import Recorder


class BucketedAllReduce(WholeParameters):
    """Collects gradients in flat buckets, and all-reduces each bucket in place."""

    one_buffer = False

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        super().__init__(model)
        self.recorder = recorder
        self.overlap = plan.overlap and not self.one_buffer
        device, dtype = self.parameters[0].device, self.parameters[0].dtype
        self.buckets = into_buckets(
            self.parameters,
            None if self.one_buffer else plan.bucket_bytes,
            alignment=_alignment(plan, groups),
        )
        buffer = torch.zeros(sum(b.size for b in self.buckets), dtype=dtype, device=device)
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
    """All-reduces all gradients in one buffer after backward."""

    one_buffer = True


def _alignment(plan: Plan, groups: Groups) -> int:
    """Returns the number of elements at a multiple of which each parameter starts.

    Tensor-parallel ranks hold copies of some parameters beside shards of others. In 8 bits the elements of a block
    share a scale. If a block held elements of a shard too, the copies would get different gradients.
    """
    blocks = plan.gradient_traffic is GradientTraffic.INT8 and groups.tensor.size > 1
    return BLOCK if blocks else 1
