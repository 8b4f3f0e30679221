"""ZeRO-1: gradients are reduce-scattered and parameters all-gathered, as in Megatron-LM's distributed
optimizer."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch import nn

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.groups import Groups
from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.chains import Chain, chains_for
from wirecost.train.parallel.gradients import GradientsReady, Places
from wirecost.train.parallel.sharded import ShardedOptimizer
from wirecost.train.recorder import Recorder


class Zero1(ShardedOptimizer):
    """Shards the optimizer. Gradients accumulate in a whole flat buffer.

    With overlap, each bucket is sent during backward of the last micro-batch. Without overlap there is one
    bucket, which is sent after backward.
    """

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        super().__init__(model, plan, groups, recorder, plan.bucket_bytes if plan.overlap else None)
        self.gradients = self._buffer()  # the padding between gradients stays zero
        views = {}
        for bucket, flat, shard in zip(self.buckets, self.gradients, self.shards, strict=True):
            views.update(bucket.views(flat))
            shard.grad = self._own_part(flat)
        self.rounds = 2 if self.replication.size > 1 else 1
        self.chains = chains_for(self.device, recorder)
        self.ready = GradientsReady(self.buckets, self._launch, Places(views))

    def zero_grad(self) -> None:
        self._launch_gathers()
        self.ready.reset()

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return self.ready.launching(last and self.overlap)

    def after_backward(self) -> None:
        with self.recorder.phase(Phase.GRAD_SYNC):
            self.ready.launch_rest()
            self.chains.finish()

    def _launch(self, bucket: Bucket) -> None:
        self.chains.start(self._reduce(bucket), self.rounds)

    def _reduce(self, bucket: Bucket) -> Chain:
        flat = self.gradients[bucket.index]
        own_part = self._own_part(flat)
        sent = self._to_wire(flat)
        part = own_part if sent is flat else self._own_part(sent)
        yield self.sharding.reduce_scatter(part, sent, asynchronous=True)
        if self.replication.size > 1:
            yield self.replication.all_reduce(part, asynchronous=True)
        if part is not own_part:
            own_part.copy_(part)
