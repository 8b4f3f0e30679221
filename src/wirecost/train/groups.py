"""Which ranks work together: one process group for each way of sharing the work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from wirecost.spec import Experiment
from wirecost.train.grid import DIMENSIONS, rank_grid

GROUPS = {
    "tensor_parallel": ("tensor",),
    "context_parallel": ("context",),
    "pipeline_parallel": ("pipeline",),
    "data_parallel": ("replicate", "shard", "context"),
    "sharding": ("shard", "context"),
    "replication": ("replicate",),
}
"""Context-parallel ranks hold the same parameters, so that gradients are summed over them as well."""


@dataclass(frozen=True)
class Group:
    """A process group as one rank sees it: `ranks` are global, in the group's order; `index` is its own place."""

    name: str
    ranks: tuple[int, ...]
    index: int
    process_group: dist.ProcessGroup | None  # None where the group is one rank

    @property
    def size(self) -> int:
        return len(self.ranks)

    def mesh(self, device_type: str) -> DeviceMesh:
        """For what takes a DeviceMesh (DTensor, FSDP2)."""
        assert self.process_group is not None, f"{self.name} is one rank"
        return DeviceMesh.from_group(self.process_group, device_type)


class Groups:
    """Every group of one rank. To be made by all ranks at once, with the same experiment.

    Groups of the same ranks share one process group: a communicator costs start-up time and device memory.
    """

    def __init__(self, experiment: Experiment, rank: int) -> None:
        self.experiment = experiment
        self.rank = rank
        self.grid = rank_grid(experiment)
        self._made: dict[tuple[int, ...], dist.ProcessGroup | None] = {}
        self._groups = {name: self._make(name, dimensions) for name, dimensions in GROUPS.items()}

    @property
    def tensor(self) -> Group:
        return self._groups["tensor_parallel"]

    @property
    def context(self) -> Group:
        return self._groups["context_parallel"]

    @property
    def pipeline(self) -> Group:
        return self._groups["pipeline_parallel"]

    @property
    def data(self) -> Group:
        """Over which gradients are summed: replicas of the same parameters."""
        return self._groups["data_parallel"]

    @property
    def sharding(self) -> Group:
        """Over which ZeRO shards; all of `data`, or the part of it on one host."""
        return self._groups["sharding"]

    @property
    def replication(self) -> Group:
        """The other ranks with the same shard (hybrid sharding)."""
        return self._groups["replication"]

    @cached_property
    def batch_share(self) -> tuple[int, int]:
        """(index, count): which share of the global batch this rank trains on."""
        place = dict(zip(DIMENSIONS, np.argwhere(self.grid == self.rank)[0].tolist(), strict=True))
        shards = self.grid.shape[DIMENSIONS.index("shard")]
        return place["replicate"] * shards + place["shard"], self.experiment.data_parallel_degree

    @property
    def pipelines(self) -> list[list[int]]:
        """The ranks of every pipeline, the first stage's first."""
        return self.grid.reshape(self.grid.shape[0], -1).T.tolist()

    def channel(self) -> Group:
        """A process group for this rank's pipeline that nothing else uses: messages keep their order within a
        process group, and are not held up by those of another. A collective call, as `of`."""
        mine = self.pipeline
        for ranks in self.pipelines:
            made = dist.new_group(ranks)
            if self.rank in ranks:
                mine = Group(self.pipeline.name, tuple(ranks), ranks.index(self.rank), made)  # type: ignore[arg-type]
        return mine

    def of(self, name: str, ranks: tuple[int, ...]) -> Group:
        """Another group, over `ranks`. A collective call: every rank of the world makes it, in the same order.
        For a rank that isn't among `ranks` the group's `index` is -1."""
        return Group(name, ranks, ranks.index(self.rank) if self.rank in ranks else -1, self._process_group(ranks))

    def _make(self, name: str, dimensions: tuple[str, ...]) -> Group:
        axes = [DIMENSIONS.index(d) for d in dimensions]
        others = [a for a in range(len(DIMENSIONS)) if a not in axes]
        size = int(np.prod([self.grid.shape[a] for a in axes]))
        mine = None
        for ranks in self.grid.transpose([*others, *axes]).reshape(-1, size).tolist():
            group = self.of(name, tuple(ranks))
            if group.index >= 0:
                mine = group
        assert mine is not None
        return mine

    def _process_group(self, ranks: tuple[int, ...]) -> dist.ProcessGroup | None:
        if ranks not in self._made:
            if len(ranks) == 1:
                self._made[ranks] = None
            elif ranks == tuple(range(dist.get_world_size())):
                self._made[ranks] = dist.group.WORLD
            else:
                made = dist.new_group(list(ranks))
                self._made[ranks] = made if isinstance(made, dist.ProcessGroup) else None
        return self._made[ranks]


def world(rank: int, ranks: int) -> Group:
    """Every rank."""
    return Group("world", tuple(range(ranks)), rank, dist.group.WORLD if ranks > 1 else None)
