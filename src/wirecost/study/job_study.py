"""A command as a study: over each of several networks, kept in a directory or only for the moment."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirecost.errors import SpecError
from wirecost.spec import Study, validate
from wirecost.study.allocation import Allocation, OnMachines
from wirecost.study.joined_study import joined_study
from wirecost.study.progress import Progress
from wirecost.study.runner import Again, PartOfStudy, run_study
from wirecost.study.store import Result, Store

NATIVE = "native"
"""The name of the network on which a job runs without emulation."""


def job_study(
    command: Sequence[str],
    *,
    name: str,
    networks: Sequence[str],
    hosts: Sequence[str] | None,
    iteration_regex: str | None = None,
    machines: int | None = None,
    interface: str | None = None,
    **settings: Any,
) -> Study:
    """Returns the study that runs a command over networks.

    Args:
        networks: names of presets, or `native`, which is this machine or these machines as they are.
        hosts: numbers of hosts, or text of the form `2x2`. None is two hosts, and one process for `native` alone.
        machines: number of machines on which another launcher starts the command. `native` is then the network
            between them, and None of `hosts` is all of them. None is this machine.
        interface: the interface of the network between machines. None leaves the choice to NCCL or gloo.
        settings: further keys of the study, like `iterations`, `warmup`, `profile_iterations` and `timeout`.

    Raises:
        SpecError: if the command can't be a job, or a network is unknown.
    """
    job: dict[str, Any] = {"name": name, "command": list(command)}
    if iteration_regex is not None:
        job["iteration_regex"] = iteration_regex
    if machines is None:
        native = {"name": NATIVE, "description": "this machine as it is", "native": {}, "inside": True}
    else:
        native = {"name": NATIVE, "native": {} if interface is None else {"interface": interface}}
        native["description"] = "the network between the machines as it is"
    default = [1] if list(networks) == [NATIVE] else [2]
    default = default if machines is None else [machines]
    shapes = [int(shape) if shape.isdecimal() else shape for shape in hosts] if hosts else default
    data = {
        "name": name,
        "workloads": [job],
        "networks": [native if network == NATIVE else network for network in networks],
        "hosts": shapes,
        "benchmark": False,
        **settings,
    }
    return validate(Study, data, "run")


def run_job(
    study: Study,
    out: Path | None,
    *,
    resume: bool,
    retry_failed: bool,
    progress: Progress,
    place: Allocation | OnMachines | None = None,
) -> list[Result]:
    """Runs a command's study and returns its results, with `resume` after those of the same command that the
    directory has already.

    Args:
        out: the directory of the results. None keeps nothing.
        place: nodes or machines on which the command is started. All of them see `out`, which is then not None.

    Raises:
        SpecError, UnsupportedError: before anything is started.
        StoreError: if the directory holds other results, or can't be written.
    """
    if out is not None:
        part = PartOfStudy(study, joined_study(Store(out), study) if resume else study)
        again = Again(failed=retry_failed)
        return run_study(part, out, resume=resume, again=again, progress=progress, place=place)
    if resume or place is not None:
        raise SpecError("without a directory there is nothing to resume, and nothing that machines share")
    with tempfile.TemporaryDirectory(prefix="wirecost-run-") as folder:
        return run_study(study, Path(folder) / "results", progress=progress)
