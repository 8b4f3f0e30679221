"""One process of a command that another launcher started: `python -m wirecost.study.job_rank DIRECTORY`.

It starts the command with the variables of its rank, and ends as the command does. On SIGTERM it kills the command
and everything that it started, because a command may ignore that signal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from wirecost.errors import WirecostError
from wirecost.jobs.commands import starts_ranks
from wirecost.jobs.lines import run_timed
from wirecost.jobs.start import EXIT_NOT_FOUND, command_of_rank
from wirecost.launch.processes import become_subreaper, descendants, die_with_parent, end_descendants, kill
from wirecost.launch.rendezvous import MEETING, free_port_of
from wirecost.launch.world import slurm_world
from wirecost.spec import JobExperiment
from wirecost.study.elsewhere import HOW
from wirecost.study.step_rank import meeting_of, under_torchrun, variables_of, write_to


def main(arguments: Sequence[str]) -> int:
    """Runs the command of the experiment in a directory, and returns its exit code.

    Raises:
        WirecostError: if neither srun nor torchrun started it.
    """
    directory = Path(arguments[0])
    experiment = JobExperiment.model_validate_json((directory / "experiment.json").read_bytes())
    how = json.loads((directory / HOW).read_bytes())
    if MEETING in os.environ:
        write_to(directory / "logs" / f"rank-{under_torchrun(os.environ)}.log")
    elif (world := slurm_world(os.environ)) is not None:
        os.environ |= variables_of(world, os.environ) | meeting_of(os.environ)
    else:
        raise WirecostError("wirecost.study.job_rank: no rank of a launcher: start it with srun or torchrun")
    if meeting := os.environ.pop(MEETING, None):
        os.environ["MASTER_PORT"] = str(free_port_of(directory, meeting, first=os.environ["RANK"] == "0"))
    threads = {} if how["threads"] is None else {"OMP_NUM_THREADS": how["threads"]}
    if starts_ranks(experiment.job.arguments, gpus=how["gpus"]):
        os.environ.pop("OMP_NUM_THREADS")  # the launcher knows its number of ranks
    own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | threads
    command, environment, number = command_of_rank(experiment, directory, own, gpus=how["gpus"])
    try:
        os.chdir(how["folder"])
    except OSError as error:
        print(f"{how['folder']}: the command can't be started in this folder: {error.strerror}", flush=True)
        return EXIT_NOT_FOUND
    become_subreaper()
    for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signal_number, lambda *_: kill(descendants(os.getpid())))
    if experiment.job.iteration_regex is not None:
        code = run_timed(command, environment, experiment.job.iteration_regex, directory, number)
    else:
        code = _run(command, environment)
    end_descendants()
    return code


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Returns the exit code of a command, or 128 + N if signal N ended it."""
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return EXIT_NOT_FOUND
    code = process.wait()
    return code if code >= 0 else 128 - code


def end_as(code: int) -> None:
    """Ends this process as a command ended: by the same signal, so that the launcher names it, or with its exit
    code.
    """
    if code > 128 and code - 128 in {s.value for s in signal.Signals}:
        signal.signal(code - 128, signal.SIG_DFL) if code - 128 not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), code - 128)
    os._exit(code)


if __name__ == "__main__":
    end_as(main(sys.argv[1:]))
