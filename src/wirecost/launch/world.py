"""Recognises ranks that torchrun, Slurm's srun or MPI's mpirun started, by their environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from wirecost.errors import SpecError

DEFAULT_PORT = 29500  # the default port of torch.distributed
SLURM_PORTS = 20000, 20000
"""First port and number of ports. The numbers of the job and of the step select one, so that two steps on one node
use different ports."""
MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Variables of Open MPI and of MPICH and its derivatives: rank, size, and both on this host."""


@dataclass(frozen=True)
class World:
    """This process among all ranks; they meet at `address` and `port`, both None if MPI connects them."""

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str | None = None
    port: int | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process reports."""
        return self.rank == 0

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.size // self.local_size


def launched_here(environment: Mapping[str, str] | None = None) -> World | None:
    """Returns this process's place in a launch of several processes, or None outside one.

    Variables that contradict each other are no launch's. A pod of a cluster may have RANK and WORLD_SIZE for a
    launcher in it, so that only a process with LOCAL_RANK is one of torchrun's.
    """
    variables = os.environ if environment is None else environment
    for world_of in (torchrun_world, slurm_world, mpi_world):
        if world_of is torchrun_world and "LOCAL_RANK" not in variables:
            continue
        with suppress(SpecError):
            world = world_of(variables)
            if world is not None and world.size > 1:
                return world
    return None


def mpi_world(environment: Mapping[str, str]) -> World | None:
    """Returns the world of a process of mpirun; None without its variables.

    Raises:
        SpecError: if they are invalid.
    """
    for rank, size, local_rank, local_size in MPI_VARIABLES:
        if rank in environment and size in environment:
            count = _number(environment, size)
            here = _number(environment, local_size, count)
            return World("mpirun", _number(environment, rank), count, _number(environment, local_rank, 0), here)
    return None


def torchrun_world(environment: Mapping[str, str]) -> World | None:
    """Returns the world of a rank of torchrun; None without its variables.

    Raises:
        SpecError: if they are invalid.
    """
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environment.keys():
        return None
    size = _number(environment, "WORLD_SIZE")
    return World(
        "torchrun",
        _number(environment, "RANK"),
        size,
        _number(environment, "LOCAL_RANK", 0),
        _number(environment, "LOCAL_WORLD_SIZE", 1),
        environment["MASTER_ADDR"],
        _number(environment, "MASTER_PORT", DEFAULT_PORT),
    )


def slurm_world(environment: Mapping[str, str]) -> World | None:
    """Returns the world of a task of a Slurm step; None for a batch script, which lacks SLURM_STEP_NUM_TASKS."""
    if not {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"} <= environment.keys():
        return None
    size, nodes = _number(environment, "SLURM_STEP_NUM_TASKS"), _number(environment, "SLURM_STEP_NUM_NODES", 1)
    first, count = SLURM_PORTS
    step = environment.get("SLURM_STEP_ID", "")  # has ten digits in an interactive step
    port = first + (_number(environment, "SLURM_JOB_ID", 0) + 101 * int(step if step.isdecimal() else 0)) % count
    return World(
        "srun",
        _number(environment, "SLURM_PROCID"),
        size,
        _number(environment, "SLURM_LOCALID", 0),
        size // nodes if nodes and size % nodes == 0 else 0,
        environment.get("MASTER_ADDR") or first_host(environment.get("SLURM_STEP_NODELIST", "")) or "127.0.0.1",
        _number(environment, "MASTER_PORT", port),
    )


def first_host(nodes: str) -> str | None:
    """Returns the first of Slurm's list of hosts: node3 for 'node[3-5,9],other'."""
    match = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in match.groups()) if match else None


def _number(environment: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    text = environment.get(name)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or not re.fullmatch(r"\d{1,9}", text):
        raise SpecError(f"{name} must be a number, as launchers set it, not '{text}'")
    return int(text)
