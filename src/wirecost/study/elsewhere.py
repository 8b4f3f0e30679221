"""Starts the ranks of an experiment by another launcher: as a step of srun, or by torchrun on named machines."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wirecost.jobs.commands import starts_ranks
from wirecost.jobs.environment import visible_gpus
from wirecost.launch.machines import MachineRanks, Machines
from wirecost.launch.step import CONTAINER_IMAGE, StepRanks
from wirecost.spec import AnyExperiment, JobExperiment
from wirecost.storage import write_file
from wirecost.study.allocation import MACHINES, STEP

STEP_RANK = "wirecost.study.step_rank"
JOB_RANK = "wirecost.study.job_rank"
HOW = "how.json"
"""File in the directory of a command's run that says how its processes are started."""
FORWARDED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")
FORWARDED_PREFIXES = ("NCCL_", "GLOO_", "TORCH_", "UCX_", "OMP_")
"""Variables of this process that a command gets on machines that the user names. Slurm passes all variables on."""


def is_elsewhere(directory: Path) -> bool:
    """Returns whether another launcher starts the ranks, perhaps on other machines."""
    return (directory / STEP).exists() or (directory / MACHINES).exists()


def forwarded(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a command gets on machines that the user names."""
    return {
        name: value
        for name, value in environment.items()
        if name in FORWARDED or name.startswith(FORWARDED_PREFIXES)
    }


def runs_here(directory: Path) -> bool:
    """Returns whether the first rank is on this machine, so that its counters are those of the job."""
    if not (directory / MACHINES).exists():
        return True  # a batch script runs on the first node, and emulated hosts are here
    address = Machines.from_json((directory / MACHINES).read_bytes()).hosts[0][1]
    try:
        for family, kind, _, _, place in socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                probe.bind(place)  # works for addresses of this machine only
                return True
    except OSError:
        return False
    return False


def start_elsewhere(directory: Path, experiment: AnyExperiment) -> StepRanks | MachineRanks:
    """Starts the ranks of a model or of a command. A command that is a launcher is started once on each host.

    Args:
        directory: of the experiment. All machines see it under this path.
    """
    directory = directory.resolve()
    module, per_host, where = STEP_RANK, experiment.ranks_per_host, ()
    variables: dict[str, str] = {}
    if isinstance(experiment, JobExperiment):
        gpus = bool(visible_gpus(os.environ))
        module, where = JOB_RANK, (Path.cwd(),)
        per_host = 1 if starts_ranks(experiment.job.arguments, gpus=gpus) else per_host
        how = {"gpus": gpus, "folder": str(where[0]), "threads": os.environ.get("OMP_NUM_THREADS")}
        write_file(directory / HOW, json.dumps(how))
        variables = forwarded(os.environ)
    common: dict[str, Any] = {"per_host": per_host, "network": experiment.network}
    count = experiment.hosts * per_host
    if (directory / MACHINES).exists():
        machines = Machines.from_json((directory / MACHINES).read_bytes())
        return MachineRanks([module, str(directory)], directory, machines, count, environment=variables, **common)
    # A container has its own Python.
    python = "python3" if CONTAINER_IMAGE in os.environ else sys.executable
    return StepRanks([python, "-m", module, str(directory)], directory, count, mounts=where, **common)
