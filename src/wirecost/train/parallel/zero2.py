"""ZeRO-2: the gradients are sharded too (Rajbhandari et al. 2020, arXiv:1910.02054, section 5.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.groups import Groups
from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.chains import Chain, chains_for
from wirecost.train.parallel.gradients import GradientsReady, copy_together, take_gradient
from wirecost.train.parallel.sharded import ShardedOptimizer
from wirecost.train.recorder import Recorder

MAX_BUCKETS_IN_FLIGHT = 2
"""Largest number of whole buckets that wait to be sent. More of them would overlap more, but take the memory that
ZeRO-2 saves."""


class Zero2(ShardedOptimizer):
    """Shards the optimizer and the gradients.

    In every micro-batch, each bucket is reduce-scattered when backward has filled it, added to this rank's
    shard, and released. Hybrid sharding all-reduces the shards once, after the last micro-batch.
    """

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        super().__init__(model, plan, groups, recorder, plan.bucket_bytes)
        for shard in self.shards:
            shard.grad = torch.zeros_like(shard)
        # Several chunks of a rank may share a bucket. The last of them is known only after backward.
        self.replicates_in_backward = plan.virtual_stages == 1
        self.chains = chains_for(self.device, recorder, MAX_BUCKETS_IN_FLIGHT if plan.overlap else 0)
        self.ready = GradientsReady(self.buckets, self._launch)
        self._last = False
        self._to_replicate: set[int] = set()

    def zero_grad(self) -> None:
        self._launch_gathers()
        for shard in self.shards:
            assert shard.grad is not None
            shard.grad.zero_()
        self._to_replicate = {b.index for b in self.buckets} if self.replication.size > 1 else set()

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        self._last = last
        self.ready.reset()
        with self.ready.launching(True):
            yield
        self.ready.launch_rest()

    def after_backward(self) -> None:
        with self.recorder.phase(Phase.GRAD_SYNC):
            self.chains.finish()
            for index in sorted(self._to_replicate):
                self.chains.start(self._replicate(index), rounds=1)
            self.chains.finish()

    def _launch(self, bucket: Bucket) -> None:
        if all(p.grad is None for p in bucket.parameters):
            return
        full = torch.empty(bucket.size, dtype=self.dtype, device=self.device)
        for gap in bucket.gaps(full):
            gap.zero_()
        places, gradients = [], []
        for parameter, view in bucket.views(full):
            if parameter.grad is None:
                view.zero_()
            else:
                places.append(view)
                gradients.append(take_gradient(parameter))
        copy_together(places, gradients)
        replicates = self._last and self.replicates_in_backward and bucket.index in self._to_replicate
        if replicates:
            self._to_replicate.discard(bucket.index)
        self.chains.start(self._reduce(bucket, full, replicates), 2 if replicates else 1, keep=full)

    def _reduce(self, bucket: Bucket, full: torch.Tensor, replicates: bool) -> Chain:
        sent = self._to_wire(full)
        part = torch.empty_like(self._own_part(sent))
        yield self.sharding.reduce_scatter(part, sent, asynchronous=True)
        self._gradient(bucket.index).add_(part)
        if replicates:
            yield from self._replicate(bucket.index)

    def _replicate(self, index: int) -> Chain:
        shard = self._gradient(index)
        sent = self._to_wire(shard)
        yield self.replication.all_reduce(sent, asynchronous=True)
        if sent is not shard:
            shard.copy_(sent)

    def _gradient(self, index: int) -> torch.Tensor:
        grad = self.shards[index].grad
        assert grad is not None
        return grad
