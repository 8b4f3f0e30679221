"""Starts the processes of a job on its hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from wirecost.emulation.hosts import EmulatedHosts
from wirecost.jobs.commands import Place, command_on, starts_ranks
from wirecost.jobs.environment import (
    gpu_environment,
    hook_environment,
    launcher_environment,
    rank_environment,
    visible_gpus,
    without_ranks,
)
from wirecost.jobs.lines import run_timed
from wirecost.launch.environment import nccl_log_environment
from wirecost.launch.ranks import Ranks
from wirecost.launch.rendezvous import MEETING
from wirecost.spec.job import JobExperiment

EXIT_NOT_FOUND = 127
"""Exit code of a command that can't be started, as a shell's."""


def start_job(experiment: JobExperiment, directory: Path, hosts: EmulatedHosts | None) -> Ranks:
    """Starts a job: a launcher once on each host, and another command once for each rank.

    Args:
        directory: has the folder `logs`. The job records in it.
        hosts: the emulated hosts, or None to run on this machine itself.
    """
    own = dict(os.environ)
    launcher = starts_ranks(experiment.job.arguments, gpus=bool(visible_gpus(own)))
    per_host = 1 if launcher else experiment.ranks_per_host
    return Ranks(
        partial(run_rank, experiment, directory, own, gpus=bool(visible_gpus(own))),
        directory,
        experiment.hosts * per_host,
        per_host=per_host,
        network=experiment.network,
        hosts=hosts,
    )


def run_rank(experiment: JobExperiment, directory: Path, own: Mapping[str, str], *, gpus: bool) -> int:
    """Becomes the command of this process, whose place is in the environment. Returns only if that fails, or after
    the command whose lines of output are timed.

    Args:
        own: the environment of the job without the variables of a launcher.
        gpus: whether `accelerate launch` counts as a launcher that is started once on each host.
    """
    command, environment, number = command_of_rank(experiment, directory, own, gpus=gpus)
    if experiment.job.iteration_regex is not None:
        return run_timed(command, environment, experiment.job.iteration_regex, directory, number)
    return become(command, environment)


def command_of_rank(
    experiment: JobExperiment, directory: Path, own: Mapping[str, str], *, gpus: bool
) -> tuple[list[str], dict[str, str], int]:
    """Returns the command of this process, its environment, and the number of the process in the launch. The
    arguments are those of `run_rank`.
    """
    environment = {name: value for name, value in os.environ.items() if name != MEETING}
    number, local = int(environment["RANK"]), int(environment["LOCAL_RANK"])
    place = Place(
        host=number // int(environment["LOCAL_WORLD_SIZE"]),
        hosts=experiment.hosts,
        ranks_per_host=experiment.ranks_per_host,
        address=environment["MASTER_ADDR"],
        port=int(environment["MASTER_PORT"]),
    )
    if starts_ranks(experiment.job.arguments, gpus=gpus):
        environment = without_ranks(environment) | launcher_environment(place)
    else:
        environment |= launcher_environment(place) | rank_environment(place, local)
    environment |= {name: own[name] for name in ("OMP_NUM_THREADS",) if name in own}
    environment |= nccl_log_environment(directory.absolute() / "logs" / "nccl-%h-%p.log")
    environment |= hook_environment(experiment, directory, own)
    if experiment.network.emulate is not None:
        environment |= gpu_environment(place, own)
    return command_on(experiment.job.arguments, place, gpus=gpus), environment, number


def become(command: list[str], environment: Mapping[str, str]) -> int:
    """Replaces this process by a command. Returns `EXIT_NOT_FOUND` if it can't be started."""
    try:
        os.execvpe(command[0], command, dict(environment))  # noqa: S606 - the user's own command
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return EXIT_NOT_FOUND
