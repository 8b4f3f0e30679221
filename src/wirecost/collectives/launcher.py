"""Ranks that somebody else started: by torchrun, by Slurm's srun, or by MPI's mpirun."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from wirecost.errors import SpecError

DEFAULT_PORT = 29500  # torch.distributed's
SLURM_PORTS = 20000, 20000
"""First of, and how many: a job's number chooses one, so that two jobs on one node don't meet."""
MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Open MPI's and MPICH's (its derivatives' too): rank, size, and both on this host."""


@dataclass(frozen=True)
class World:
    """This process among all ranks; `address` and `port` are where they meet, None where MPI sees to it."""

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str | None = None
    port: int | None = None

    @property
    def hosts(self) -> int:
        return self.size // self.local_size


def find_world(backend: str | None, environment: Mapping[str, str]) -> World | None:
    """The world that a launcher's variables describe; None where there is none, or one rank only.

    Raises:
        SpecError: for MPI without its launcher, or variables that contradict each other.
    """
    mpi = _mpi(environment)
    if backend == "mpi":
        if mpi is None:
            raise SpecError(
                "backend mpi runs under MPI's launcher, one process a rank: "
                "mpirun -n 2 wirecost bench --backend mpi ..."
            )
        return _checked(mpi)
    for found in (_torchrun(environment), _slurm(environment)):
        if found is not None and found.size > 1:
            return _checked(found)
    return _checked(mpi) if mpi is not None and mpi.size > 1 else None


def _mpi(environment: Mapping[str, str]) -> World | None:
    for rank, size, local_rank, local_size in MPI_VARIABLES:
        if rank in environment and size in environment:
            count = _number(environment, size)
            here = _number(environment, local_size, count)
            return World("mpirun", _number(environment, rank), count, _number(environment, local_rank, 0), here)
    return None


def _torchrun(environment: Mapping[str, str]) -> World | None:
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


def _slurm(environment: Mapping[str, str]) -> World | None:
    """A step's task; a batch script, which is no task of a step, lacks SLURM_STEP_NUM_TASKS."""
    if not {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"} <= environment.keys():
        return None
    size, nodes = _number(environment, "SLURM_STEP_NUM_TASKS"), _number(environment, "SLURM_STEP_NUM_NODES", 1)
    first, count = SLURM_PORTS
    return World(
        "srun",
        _number(environment, "SLURM_PROCID"),
        size,
        _number(environment, "SLURM_LOCALID", 0),
        size // nodes if nodes and size % nodes == 0 else 0,
        environment.get("MASTER_ADDR") or first_host(environment.get("SLURM_STEP_NODELIST", "")) or "127.0.0.1",
        _number(environment, "MASTER_PORT", first + _number(environment, "SLURM_JOB_ID", 0) % count),
    )


def first_host(nodes: str) -> str | None:
    """The first of Slurm's list of hosts: node3 of 'node[3-5,9],other'."""
    match = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in match.groups()) if match else None


def _number(environment: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    text = environment.get(name)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or not re.fullmatch(r"\d{1,9}", text):
        raise SpecError(f"{name} is a number where a launcher sets it, not '{text}'")
    return int(text)


def _checked(world: World) -> World:
    if world.rank >= world.size:
        raise SpecError(f"{world.launcher}: rank {world.rank} of {world.size} can't be")
    if world.local_size < 1 or world.size % world.local_size or world.local_rank >= world.local_size:
        raise SpecError(
            f"{world.launcher}: every host needs as many ranks as the others: {world.size} ranks, "
            f"{world.local_size or 'different numbers'} on this host"
        )
    return world
