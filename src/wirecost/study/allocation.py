"""The nodes of a batch system that a run works on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from wirecost.launch.machines import Machines
from wirecost.spec import AnyExperiment

E = TypeVar("E", bound=AnyExperiment)
STEP = "srun.json"
"""File in an experiment's directory whose presence says that its ranks are tasks of a Slurm step."""
MACHINES = "machines.json"
"""File in an experiment's directory with the machines on which torchrun starts its ranks."""
MARGIN_S = 30.0
"""Time before the end of an allocation that is kept free, so that a result can be published."""


@dataclass(frozen=True, order=True)
class Allocation:
    """Nodes for experiments of one shape.

    Attributes:
        hosts: number of hosts of an experiment.
        ranks_per_host: ranks on each host.
        is_emulated: whether the hosts are emulated on one node. Otherwise each host is a node.
    """

    hosts: int
    ranks_per_host: int
    is_emulated: bool

    @staticmethod
    def of(experiment: AnyExperiment) -> Allocation:
        """Returns the allocation that an experiment needs."""
        return Allocation(experiment.hosts, experiment.ranks_per_host, experiment.network.emulate is not None)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return 1 if self.is_emulated else self.hosts

    @property
    def tasks_per_node(self) -> int:
        """Number of ranks on a node."""
        return self.hosts * self.ranks_per_host // self.nodes

    @property
    def name(self) -> str:
        """A short name, as `2x8` or `2x2-emulated`."""
        return f"{self.hosts}x{self.ranks_per_host}{'-emulated' if self.is_emulated else ''}"

    @staticmethod
    def named(name: str) -> Allocation:
        """Returns the allocation with such a name.

        Raises:
            ValueError: if it is no such name.
        """
        shape, _, emulated = name.partition("-")
        hosts, _, ranks = shape.partition("x")
        counts = hosts.isdigit() and ranks.isdigit() and int(hosts) * int(ranks) > 0
        if emulated not in ("", "emulated") or not counts:
            raise ValueError(f"a shape is like 2x8 or 2x2-emulated, not '{name}'")
        return Allocation(int(hosts), int(ranks), bool(emulated))

    def fitting(self, experiments: Iterable[E]) -> list[E]:
        """Returns the experiments that need such an allocation."""
        return [experiment for experiment in experiments if Allocation.of(experiment) == self]

    @staticmethod
    def deadline() -> float | None:
        """Returns when the run should end, on the clock of `time.monotonic`; None if Slurm doesn't say."""
        end = os.environ.get("SLURM_JOB_END_TIME", "")
        return time.monotonic() + int(end) - time.time() - MARGIN_S if end.isdigit() else None


@dataclass(frozen=True)
class OnMachines:
    """Machines that the user named, for all experiments of a study or for those of one shape.

    Runs of several shapes share a store, as the jobs of a batch system do.
    """

    machines: Machines
    allocation: Allocation | None = None
