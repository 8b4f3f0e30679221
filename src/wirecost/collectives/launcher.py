"""The ranks of a benchmark that torchrun, Slurm's srun or MPI's mpirun started."""

from __future__ import annotations

from collections.abc import Mapping

from wirecost.errors import SpecError
from wirecost.launch.world import World, mpi_world, slurm_world, torchrun_world


def find_world(backend: str | None, environment: Mapping[str, str]) -> World | None:
    """Returns the world that a launcher's variables describe; None without a launcher or with a single rank.

    Raises:
        SpecError: for MPI without its launcher, or variables that contradict each other.
    """
    mpi = mpi_world(environment)
    if backend == "mpi":
        if mpi is None:
            raise SpecError(
                "backend mpi runs under MPI's launcher, one process a rank: "
                "mpirun -n 2 wirecost bench --backend mpi ..."
            )
        return _checked(mpi)
    for world in (torchrun_world(environment), slurm_world(environment)):
        if world is not None and world.size > 1:
            return _checked(world)
    return _checked(mpi) if mpi is not None and mpi.size > 1 else None


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
