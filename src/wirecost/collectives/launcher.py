"""Recognises ranks that torchrun, Slurm's srun or MPI's mpirun started."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    def hosts(self) -> int:
        return self.size // self.local_size


def find_world(backend: str | None, environment: Mapping[str, str]) -> World | None:
    """Returns the world that a launcher's variables describe; None without a launcher or with a single rank.

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
    for world in (_torchrun(environment), slurm_world(environment)):
        if world is not None and world.size > 1:
            return _checked(world)
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


def _checked(world: World) -> World:
    if world.rank >= world.size:
        raise SpecError(
            f"{world.launcher}: invalid rank {world.rank} of {world.size}: ranks are 0 to {world.size - 1}"
        )
    if world.local_size < 1 or world.size % world.local_size or world.local_rank >= world.local_size:
        raise SpecError(
            f"{world.launcher}: every host needs as many ranks as the others: {world.size} ranks, "
            f"{world.local_size or 'different numbers'} on this host"
        )
    return world
