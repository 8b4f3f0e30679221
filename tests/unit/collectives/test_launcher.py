"""Which rank a launcher's variables make of a process."""

from __future__ import annotations

import pytest

from wirecost.collectives.launcher import find_world
from wirecost.errors import SpecError
from wirecost.launch.world import World, first_host

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node1",
    "MASTER_PORT": "1234",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "node[07-08]", "SLURM_JOB_ID": "42",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}  # fmt: skip
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def test_each_launcher() -> None:
    assert find_world(None, TORCHRUN) == World("torchrun", 3, 4, 1, 2, "node1", 1234)
    assert find_world(None, SLURM) == World("srun", 3, 4, 1, 2, "node07", 20042)
    assert find_world("mpi", OPEN_MPI) == find_world("mpi", MPICH) == World("mpirun", 3, 4, 1, 2)
    # srun may start torch's or MPI's own variables too: they say more.
    assert (find_world("gloo", SLURM | TORCHRUN) or World("", 0, 0, 0, 0)).launcher == "torchrun"


def test_nobody_launched_it() -> None:
    assert find_world(None, {}) is None
    assert find_world("gloo", TORCHRUN | {"WORLD_SIZE": "1", "RANK": "0"}) is None
    # A batch script runs on a node of its job and is no task of a step.
    assert find_world(None, {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "42"}) is None


@pytest.mark.parametrize(
    ("backend", "environment", "said"),
    [
        ("mpi", {}, "mpirun -n 2 wirecost bench"),
        (None, TORCHRUN | {"RANK": "x"}, "RANK must be a number"),
        (None, TORCHRUN | {"RANK": "4"}, "rank 4 of 4"),
        (None, TORCHRUN | {"LOCAL_WORLD_SIZE": "3"}, "as many ranks as the others"),
        (None, SLURM | {"SLURM_STEP_NUM_NODES": "3"}, "different numbers"),
        (None, SLURM | {"SLURM_STEP_NUM_NODES": "0"}, "different numbers"),
    ],
)
def test_what_contradicts_itself_is_refused(backend: str | None, environment: dict[str, str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        find_world(backend, environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a1,b2", "a1"), ("node[3-5,9],other", "node3"), ("n[01-02]-ib", "n01-ib"), ("", None)],
)
def test_the_first_of_slurms_hosts(nodes: str, first: str | None) -> None:
    assert first_host(nodes) == first
