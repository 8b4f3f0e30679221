"""Finds out whether this process is one of several that a launcher (torchrun, srun, mpirun) started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

_WAYS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"),
    # A batch script has a rank and a number of tasks as well, but it is no task of a step.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_JOB_ID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE"),
)
"""Environment variables of launchers: rank, number of ranks, rank on the host, the launch's own name."""


@dataclass(frozen=True)
class Launched:
    """The place of this process in a launch."""

    rank: int
    world_size: int
    local_rank: int
    name: str

    @property
    def is_first(self) -> bool:
        """Whether this process reports."""
        return self.rank == 0


def launched_here(environment: Mapping[str, str] | None = None) -> Launched | None:
    """Returns this process's place in a launch of several processes, or None outside one."""
    variables = os.environ if environment is None else environment
    for rank, world_size, local_rank, name in _WAYS:
        values = [variables.get(key, "") for key in (rank, world_size, local_rank)]
        if all(value.isdecimal() for value in values) and int(values[1]) > 1:
            place, size, local_place = map(int, values)
            return Launched(place, size, local_place, variables.get(name, ""))
    return None
