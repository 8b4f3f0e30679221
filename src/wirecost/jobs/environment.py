"""Environment variables of a job: those of torchrun, those that load the hook, and the GPUs of each host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from wirecost.jobs.commands import Place
from wirecost.spec.job import JobExperiment

HOOK = Path(__file__).parent / "hook"
"""Folder that is put on PYTHONPATH, so that Python imports its `sitecustomize` at start."""
RUN_ID = "wirecost"
_OF_RANKS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "NODE_RANK",
)  # fmt: skip
NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")


def hook_environment(experiment: JobExperiment, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that load the hook in every Python process of a job.

    Args:
        folder: where ranks record.
        environment: the job's environment without them.
    """
    path = environment.get("PYTHONPATH")
    return {
        "PYTHONPATH": os.pathsep.join([str(HOOK), *([path] if path else [])]),
        "WIRECOST_JOB": str(folder.absolute()),
        "WIRECOST_JOB_WARMUP": str(experiment.warmup),
        "WIRECOST_JOB_ITERATIONS": str(experiment.iterations),
        "WIRECOST_JOB_PROFILED": str(experiment.profile_iterations),
    }


def rank_environment(place: Place, local_rank: int) -> dict[str, str]:
    """Returns the variables that torchrun sets for a rank."""
    rank = place.host * place.ranks_per_host + local_rank
    world_size = place.hosts * place.ranks_per_host
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(place.ranks_per_host),
        "GROUP_RANK": str(place.host),
        "GROUP_WORLD_SIZE": str(place.hosts),
        "NODE_RANK": str(place.host),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        "TORCHELASTIC_RUN_ID": RUN_ID,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def launcher_environment(place: Place) -> dict[str, str]:
    """Returns the variables from which a launcher inside a job takes its rendezvous.

    torchrun reads the defaults of its options from variables that begin with PET_.
    """
    return {
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        "NODE_RANK": str(place.host),
        "PET_NNODES": str(place.hosts),
        "PET_NODE_RANK": str(place.host),
        "PET_NPROC_PER_NODE": str(place.ranks_per_host),
        "PET_MASTER_ADDR": place.address,
        "PET_MASTER_PORT": str(place.port),
    }


def without_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables of a rank, as a launcher expects it."""
    return {name: value for name, value in environment.items() if name not in _OF_RANKS}


def gpu_environment(place: Place, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that give each emulated host GPUs of its own, if there are enough for all of them."""
    gpus = visible_gpus(environment)
    if place.hosts == 1 or len(gpus) < place.hosts * place.ranks_per_host:
        return {}
    first = place.host * place.ranks_per_host
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus[first : first + place.ranks_per_host])}


def visible_gpus(environment: Mapping[str, str], devices: Path = NVIDIA_DEVICES) -> list[str]:
    """Returns the names of the NVIDIA GPUs that a job may use, as in CUDA_VISIBLE_DEVICES."""
    here = len(list(devices.glob("*/information")))
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(number) for number in range(here)]
    return [name for name in named.split(",") if name and name != "-1"] if here else []
