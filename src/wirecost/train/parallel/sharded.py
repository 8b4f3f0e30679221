"""The common part of ZeRO-1 and ZeRO-2: parameters in a flat buffer, of which each rank steps a part.

Each bucket is divided into equal parts, one for each rank of the sharding group, as in Megatron-LM's
distributed optimizer (docs/source/api-guide/dist_optimizer.md; Rajbhandari et al. 2020, arXiv:1910.02054). The
sharding group is the data-parallel group or its part on one host. In the latter case (hybrid sharding), shards
are then all-reduced over the hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Group, Groups
from wirecost.train.models.base import Unit
from wirecost.train.parallel.base import uncompiled
from wirecost.train.parallel.buckets import ALIGNMENT, into_buckets
from wirecost.train.parallel.traffic import WIRE_DTYPES
from wirecost.train.pending import Pending
from wirecost.train.recorder import Recorder


class ShardedOptimizer:
    """Shards the optimizer. The module's parameters are views of the flat buffer.

    With overlap, stepped parameters are gathered at the start of the next iteration, by bucket in the order of
    forward, and each unit waits for its own parameters. Without overlap they are gathered immediately after the
    step.

    Attributes:
        values: the flat parameters of each bucket.
        shards: this rank's part of each bucket.
    """

    def __init__(
        self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder, bucket_bytes: int | None
    ) -> None:
        self.module: nn.Module = model
        self.recorder = recorder
        self.overlap = plan.overlap
        self.compiled = plan.compile
        self.wire_dtype = WIRE_DTYPES.get(plan.gradient_traffic)
        self.sharding = Communicator(groups.sharding, recorder)
        self.replication = Communicator(groups.replication, recorder)
        parameters = list(model.parameters())
        self.device, self.dtype = parameters[0].device, parameters[0].dtype
        ranks = self.sharding.size
        self.buckets = into_buckets(parameters, bucket_bytes, alignment=ALIGNMENT, multiple_of=ALIGNMENT * ranks)
        self.values = self._buffer()
        for bucket, flat in zip(self.buckets, self.values, strict=True):
            for parameter, view in bucket.views(flat):
                view.copy_(parameter.detach())
                parameter.data = view
        self.shards = [nn.Parameter(self._own_part(flat)) for flat in self.values]
        self._gathers: dict[int, Pending] = {}
        self._stale = False
        if self.overlap and ranks > 1:
            self._gather_in_forward(model)

    @property
    def pieces_over(self) -> Group | None:
        return self.sharding.group if self.sharding.size > 1 else None

    def optimizer_parameters(self) -> Sequence[nn.Parameter]:
        return self.shards

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        for bucket, shard in zip(self.buckets, self.shards, strict=True):
            assert shard.grad is not None
            first = self.sharding.group.index * shard.numel()
            for parameter, start in zip(bucket.parameters, bucket.starts, strict=True):
                low = max(start - first, 0)
                high = min(start + parameter.numel() - first, shard.numel())
                if low < high:
                    yield parameter, shard.grad[low:high]

    def after_step(self) -> None:
        if self.overlap:
            self._stale = True
            return
        for flat, shard in zip(self.values, self.shards, strict=True):
            self.sharding.all_gather(flat, shard.detach(), phase=Phase.PARAM_GATHER)

    def complete_parameters(self) -> None:
        self._launch_gathers()
        for index in list(self._gathers):
            self._gathers.pop(index).wait()

    def carried(self) -> dict[str, torch.Tensor]:
        return {}

    def _launch_gathers(self) -> None:
        """Gathers stepped parameters in the order of forward, which is the reverse of the buckets' order."""
        if self._stale:
            self._stale = False
            for bucket in reversed(self.buckets):
                self._gathers[bucket.index] = self.sharding.all_gather(
                    self.values[bucket.index], self.shards[bucket.index].detach(), asynchronous=True
                )

    def _gather_in_forward(self, model: nn.Module) -> None:
        bucket_of = {p: bucket.index for bucket in self.buckets for p in bucket.parameters}
        units = [m for m in model.modules() if isinstance(m, Unit)] or [model]
        for unit in units:
            needed = sorted({bucket_of[p] for p in unit.parameters() if p in bucket_of}, reverse=True)

            def wait(_module: nn.Module, _inputs: object, needed: list[int] = needed) -> None:
                if not self._gathers:
                    return
                pending = [self._gathers.pop(index) for index in needed if index in self._gathers]
                if pending:
                    with self.recorder.phase(Phase.PARAM_GATHER):
                        for gather in pending:
                            gather.wait()

            unit.register_forward_pre_hook(uncompiled(wait) if self.compiled else wait)

    def _buffer(self) -> list[torch.Tensor]:
        """Returns zeros for every bucket, in one allocation."""
        sizes = [bucket.size for bucket in self.buckets]
        return list(torch.zeros(sum(sizes), dtype=self.dtype, device=self.device).split(sizes))

    def _own_part(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns this rank's part of a bucket."""
        return flat.chunk(self.sharding.size)[self.sharding.group.index]

    def _to_wire(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns gradients in the dtype that is sent. It is the same tensor if the dtype is the same."""
        return flat if self.wire_dtype is None else flat.to(self.wire_dtype)
