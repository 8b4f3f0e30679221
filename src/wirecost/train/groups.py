"""The process groups of a rank, one for each kind of parallelism."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from wirecost.spec import Experiment
from wirecost.train.grid import DIMENSIONS, rank_grid

GROUPS = {
    "tensor_parallel": ("tensor",),
    "context_parallel": ("context",),
    "pipeline_parallel": ("pipeline",),
    "expert_parallel": ("expert",),
    "data_parallel": ("replicate", "shard", "expert", "context"),
    "sharding": ("shard", "expert", "context"),
    "replication": ("replicate",),
    "expert_data_parallel": ("replicate", "shard", "context"),
    "expert_sharding": ("shard", "context"),
}
"""The grid's dimensions that each group spans. Context-parallel ranks hold the same parameters, so gradients
are summed over them as well."""


@dataclass(frozen=True)
class Group:
    """A process group from the view of one rank.

    Attributes:
        ranks: the global ranks in the group's order.
        index: this rank's index in `ranks`, or -1 if it isn't a member.
        process_group: None if the group has one rank.
    """

    name: str
    ranks: tuple[int, ...]
    index: int
    process_group: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def mesh(self, device_type: str) -> DeviceMesh:
        """Returns the group as a DeviceMesh, which DTensor and FSDP2 need."""
        assert self.process_group is not None, f"{self.name} is one rank"
        return DeviceMesh.from_group(self.process_group, device_type)


class Groups:
    """All groups of one rank. All ranks create them at the same time, with the same experiment.

    Groups with the same ranks share a process group, because a communicator takes start-up time and device memory.
    """

    def __init__(self, experiment: Experiment, rank: int) -> None:
        self.experiment = experiment
        self.rank = rank
        self.grid = rank_grid(experiment)
        self._process_groups: dict[tuple[int, ...], dist.ProcessGroup | None] = {}
        self._groups = {name: self._create(name, dimensions) for name, dimensions in GROUPS.items()}

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
    def expert(self) -> Group:
        """The ranks that hold different experts."""
        return self._groups["expert_parallel"]

    @property
    def data(self) -> Group:
        """The ranks that hold the same parameters. Gradients are summed over them."""
        return self._groups["data_parallel"]

    @property
    def sharding(self) -> Group:
        """The ranks over which ZeRO shards: all of `data`, or those of `data` on one host."""
        return self._groups["sharding"]

    @property
    def replication(self) -> Group:
        """The ranks with the same shard (hybrid sharding)."""
        return self._groups["replication"]

    def of_experts(self) -> Groups:
        """Returns the groups in which `data` and `sharding` are the ranks that hold the same experts."""
        groups = copy.copy(self)
        groups._groups = self._groups | {
            "data_parallel": self._groups["expert_data_parallel"],
            "sharding": self._groups["expert_sharding"],
        }
        return groups

    @cached_property
    def batch_share(self) -> tuple[int, int]:
        """The share of the global batch that this rank trains on, as (index, number of shares)."""
        place = dict(zip(DIMENSIONS, np.argwhere(self.grid == self.rank)[0].tolist(), strict=True))
        sizes = dict(zip(DIMENSIONS, self.grid.shape, strict=True))
        index = place["replicate"] * sizes["shard"] + place["shard"]
        return index * sizes["expert"] + place["expert"], self.experiment.data_parallel_degree

    @property
    def pipelines(self) -> list[list[int]]:
        """The ranks of every pipeline, in the order of the stages."""
        return self.grid.reshape(self.grid.shape[0], -1).T.tolist()

    def channel(self) -> Group:
        """Creates a process group for this rank's pipeline that nothing else uses.

        Messages within a process group keep their order, and those of other process groups don't delay them.
        This is a collective call, as `over` is.
        """
        group = self.pipeline
        for ranks in self.pipelines:
            process_group = dist.new_group(ranks, pg_options=communication_options())
            if self.rank in ranks:
                index = ranks.index(self.rank)
                group = Group(self.pipeline.name, tuple(ranks), index, process_group)  # type: ignore[arg-type]
        return group

    def with_process_group(self, group: Group) -> Group:
        """Returns the group with a process group also if it has one rank, which FSDP2 needs. This is a collective
        call, as `over` is."""
        if group.size > 1:
            return group
        for rank in range(dist.get_world_size()):
            process_group = dist.new_group([rank], pg_options=communication_options())
            if rank == self.rank:
                group = Group(group.name, (rank,), 0, process_group)  # type: ignore[arg-type]
        return group

    def over(self, name: str, ranks: tuple[int, ...]) -> Group:
        """Returns a group of ascending `ranks`. This is a collective call: all ranks of the world make it, in
        the same order.

        On a rank that isn't one of `ranks`, the group's `index` is -1.
        """
        return Group(name, ranks, ranks.index(self.rank) if self.rank in ranks else -1, self._process_group(ranks))

    def _create(self, name: str, dimensions: tuple[str, ...]) -> Group:
        """Creates the groups that span some dimensions of the grid, and returns the one that contains this
        rank."""
        axes = [DIMENSIONS.index(d) for d in dimensions]
        others = [a for a in range(len(DIMENSIONS)) if a not in axes]
        size = int(np.prod([self.grid.shape[a] for a in axes]))
        own_group = None
        for ranks in self.grid.transpose([*others, *axes]).reshape(-1, size).tolist():
            # `dist.new_group` sorts ranks, and the parts of collectives are in its order.
            group = self.over(name, tuple(sorted(ranks)))
            if group.index >= 0:
                own_group = group
        assert own_group is not None
        return own_group

    def _process_group(self, ranks: tuple[int, ...]) -> dist.ProcessGroup | None:
        if ranks not in self._process_groups:
            if len(ranks) == 1:
                self._process_groups[ranks] = None
            elif ranks == tuple(range(dist.get_world_size())):
                self._process_groups[ranks] = dist.group.WORLD
            else:
                created = dist.new_group(list(ranks), pg_options=communication_options())
                self._process_groups[ranks] = created if isinstance(created, dist.ProcessGroup) else None
        return self._process_groups[ranks]


def communication_options(backend: str | None = None) -> Any:
    """Returns the options of a process group for `pg_options`, or None if the backend has none.

    NCCL's streams get a high priority. Otherwise a collective that could start together with a matrix product
    waits until the product leaves multiprocessors to it.

    Args:
        backend: the backend. None is that of the default group.
    """
    if (backend or dist.get_backend()) != "nccl":
        return None
    return dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)


def world(rank: int, ranks: int) -> Group:
    """Returns the group of all `ranks` ranks."""
    return Group("world", tuple(range(ranks)), rank, dist.group.WORLD if ranks > 1 else None)
