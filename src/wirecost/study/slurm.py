"""Runs a study as jobs of Slurm: one batch script for each shape of its experiments, which sbatch queues.

STORE/slurm/SHAPE.sbatch     the script
STORE/slurm/SHAPE-JOB.log    what the job printed
STORE/slurm/jobs.json        the jobs that were submitted
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from wirecost.errors import SpecError, UnsupportedError, WirecostError
from wirecost.launch.step import CONTAINER_IMAGE
from wirecost.spec import Device, Study
from wirecost.storage import write_file
from wirecost.study.allocation import Allocation
from wirecost.study.manifest import read_regular
from wirecost.study.run_record import RunRecord, runs_of
from wirecost.study.runnable import check_installed
from wirecost.study.store import Store, StoreError

FOLDER = "slurm"
ANSWER_S = 60.0
"""Time that Slurm's commands have to answer."""
CLOCKS_S = 5.0
"""Most that the clocks of two machines of a cluster are assumed to differ."""


@dataclass(frozen=True)
class SlurmOptions:
    """Options of sbatch for every job of a study. None leaves Slurm's default.

    Attributes:
        time: time limit of a job, as sbatch takes it.
        container_image: image in which srun of the pyxis plugin starts the ranks.
        parallel: jobs that work on experiments of one shape at the same time.
        more: further options, as `qos=high`.
    """

    partition: str | None = None
    account: str | None = None
    time: str | None = None
    constraint: str | None = None
    container_image: str | None = None
    parallel: int = 1
    more: tuple[str, ...] = ()


class SubmittedJob(BaseModel):
    """A job that was submitted for the experiments of one shape."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    shape: str
    experiments: int


@dataclass(frozen=True)
class QueuedJob:
    """A job, or a task of an array of jobs, as squeue shows it.

    Attributes:
        job: its ID.
        state: its state, as `RUNNING`.
        reason: its nodes, or the reason for which it waits.
        left: time left until its time limit.
        start: when it started, or will start, as ISO 8601 in local time. Other text is unknown.
    """

    job: str
    state: str
    reason: str
    left: str
    start: str = ""


_JOBS = TypeAdapter(list[SubmittedJob])


def submit(study: Study, out: Path, options: SlurmOptions, run_options: Sequence[str] = ()) -> list[SubmittedJob]:
    """Submits the unfinished experiments of a study and returns the jobs; none if all are finished.

    Experiments of one shape (hosts x ranks per host) share a job, so that one allocation serves many of them.
    Several jobs of a shape share its experiments and run none twice. Emulated hosts need one node.

    Args:
        run_options: further options of `wirecost study run` in the jobs, as `--retry-failed`.

    Raises:
        SpecError, MissingExtraError: if the study can't be trained.
        UnsupportedError: without sbatch.
        StoreError: if the store is in use, or holds jobs that are queued or run.
        WirecostError: if sbatch refuses a job. Jobs that were submitted before stay, and are named.
    """
    if shutil.which("sbatch") is None:
        raise UnsupportedError("--launcher slurm: sbatch isn't installed here; run it where jobs are submitted")
    check_installed(study)
    store = Store(out)
    store.check_study_file(study)
    _check_queue(out)  # these jobs may have locked the store
    with store.locked():
        _check_queue(out)
        store.save_study(study)
        again = bool(run_options)
        todo = [e for e in store.planned(study) if again or not store.is_finished(e)]
        folder = out.resolve() / FOLDER
        folder.mkdir(exist_ok=True)
        jobs = []
        for allocation in sorted({Allocation.of(experiment) for experiment in todo}):
            count = len(allocation.fitting(todo))
            script = folder / f"{allocation.name}.sbatch"
            write_file(script, script_of(study, out.resolve(), allocation, options, count, run_options))
            try:
                number = _sbatch(script)
            except WirecostError as error:
                before = ", ".join(str(job.number) for job in jobs)
                raise WirecostError(f"{error}{f'; submitted before: {before}' if jobs else ''}") from error
            jobs.append(SubmittedJob(number=number, shape=allocation.name, experiments=count))
            write_file(folder / "jobs.json", _JOBS.dump_json(jobs, indent=1))
    return jobs


def _check_queue(out: Path) -> None:
    """Raises StoreError if jobs that were submitted for a store wait or run."""
    if queued := queue_of(out):
        names = ", ".join(job.job for job in queued[:5])
        raise StoreError(
            f"{out}: jobs of an earlier run wait or run ({names}); wirecost study cancel {shlex.quote(str(out))} "
            "ends them"
        )


def script_of(
    study: Study,
    out: Path,
    allocation: Allocation,
    options: SlurmOptions,
    count: int,
    run_options: Sequence[str] = (),
) -> str:
    """Returns the batch script for the experiments of one shape.

    Args:
        out: absolute path of the store, which all nodes see.
        count: number of these experiments.

    Raises:
        SpecError: if an option of sbatch isn't one line of text.
    """
    tasks = min(options.parallel, count)
    lines = {
        "job-name": f"wirecost-{re.sub(r'[^A-Za-z0-9._-]', '-', study.name)}-{allocation.name}",
        "nodes": str(allocation.nodes),
        "ntasks-per-node": str(allocation.tasks_per_node),
        "output": f"{str(out).replace('%', '%%')}/{FOLDER}/{allocation.name}-%{'A_%a' if tasks > 1 else 'j'}.log",
        "open-mode": "append",
        "signal": "B:TERM@60",  # a minute before the time limit, so that nothing is cut off
        "requeue": "",
        "partition": options.partition,
        "account": options.account,
        "time": options.time,
        "constraint": options.constraint,
        "array": f"1-{tasks}" if tasks > 1 else None,
        "gpus-per-node": str(allocation.tasks_per_node) if study.device is Device.CUDA else None,
    }
    for text in options.more:
        name, _, value = text.removeprefix("--").partition("=")
        lines[name] = value
    header = []
    for name, value in lines.items():
        if value is None:
            continue
        if not re.fullmatch(r"[a-z][a-z-]*", name) or not value.isprintable():
            raise SpecError(f"sbatch: '{name}={value}' is no option; write it as qos=high")
        header.append(f"#SBATCH --{name}" + (f"={shlex.quote(value)}" if value else ""))
    command = [
        sys.executable, "-m", "wirecost", "study", "run", str(out / "study.yaml"), "--out", str(out), "--resume",
        "--launcher", "srun", "--shape", allocation.name, *run_options,
    ]  # fmt: skip
    container = options.container_image
    variables = [f"export {CONTAINER_IMAGE}={shlex.quote(container)}"] if container else []
    return "\n".join(["#!/bin/bash", *header, *variables, f"exec {shlex.join(command)}", ""])


def _sbatch(script: Path) -> int:
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=False, timeout=ANSWER_S
        )
    except subprocess.TimeoutExpired as error:
        raise WirecostError(f"sbatch {script}: no answer within {ANSWER_S:.0f} s") from error
    number = done.stdout.strip().partition(";")[0]
    if done.returncode or not number.isdigit():
        said = " ".join(done.stderr.split())[:300]
        raise WirecostError(f"sbatch {script}: {said or 'failed without a message'}")
    return int(number)


def submitted_jobs(root: Path) -> list[SubmittedJob]:
    """Returns the jobs that the last `study run --launcher slurm` submitted; none if it is unknown."""
    with suppress(OSError, ValidationError):
        return _JOBS.validate_json(read_regular(root / FOLDER / "jobs.json"))
    return []


def queue_of(root: Path) -> list[QueuedJob]:
    """Returns those of the submitted jobs that wait or run. Without Slurm's commands here, it returns none.

    Raises:
        WirecostError: if Slurm doesn't answer.
    """
    return queued_jobs([str(job.number) for job in submitted_jobs(root)])


def live_runs(root: Path) -> list[RunRecord]:
    """Returns the recorded runs on a store that exist, or may exist on other machines.

    A run in a job of Slurm counts as gone if squeue knows that its job doesn't run, or started after it.

    Raises:
        WirecostError: if Slurm doesn't answer.
    """
    runs = runs_of(root)
    numbers = {number for run in runs if (number := run.slurm_job) is not None and not run.is_here}
    if not numbers or shutil.which("squeue") is None:
        return runs
    jobs: dict[str, list[QueuedJob]] = {}
    for job in queued_jobs(sorted(numbers)):
        jobs.setdefault(job.job.partition("_")[0], []).append(job)
    return [
        run
        for run in runs
        if run.is_here or run.slurm_job is None or any(_may_be(run, job) for job in jobs.get(run.slurm_job, ()))
    ]


def _may_be(run: RunRecord, job: QueuedJob) -> bool:
    """Returns whether a run may be one in a job that is queued, and not in an earlier start of it."""
    if job.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"):
        return False
    try:
        started = datetime.fromisoformat(job.start).timestamp()
    except ValueError:
        return True
    return run.begun >= started - CLOCKS_S


def queued_jobs(numbers: Sequence[str]) -> list[QueuedJob]:
    """Returns those of these jobs that wait or run. Without Slurm's commands here, it returns none.

    Raises:
        WirecostError: if Slurm doesn't answer.
    """
    if not numbers or shutil.which("squeue") is None:
        return []
    # squeue leaves out jobs of a list that ended long ago, but it fails if the only job is such a one.
    command = ["squeue", "--noheader", "--jobs", ",".join(numbers), "--format", "%i\t%T\t%R\t%L\t%S"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_S)
    except subprocess.TimeoutExpired as error:
        raise WirecostError(f"squeue: no answer within {ANSWER_S:.0f} s") from error
    if done.returncode and "Invalid job id" not in done.stderr:
        raise WirecostError(f"squeue: {done.stderr.strip()[-300:] or 'failed without a message'}")
    return list(_jobs(done.stdout.splitlines()))


def _jobs(lines: Iterable[str]) -> Iterable[QueuedJob]:
    for line in lines:
        parts = line.strip().split("\t")
        if len(parts) == 5:
            yield QueuedJob(*parts)


def cancel_jobs(root: Path) -> list[str]:
    """Cancels those of the submitted jobs that wait or run, and returns a line for each.

    Raises:
        WirecostError: if Slurm refuses it.
    """
    numbers = sorted({job.job.partition("_")[0] for job in queue_of(root)})
    if not numbers:
        return []
    done = subprocess.run(["scancel", *numbers], capture_output=True, text=True, check=False, timeout=ANSWER_S)
    if done.returncode:
        raise WirecostError(f"scancel {' '.join(numbers)}: {done.stderr.strip()[-300:] or 'failed'}")
    return [
        f"cancelled job {number}; finished experiments are kept, and the next submission runs the others"
        for number in numbers
    ]
