"""Measures a command in place, in processes that torchrun, srun or mpirun started: each runs its own rank.

The processes share the directory of the results. The first one prepares and reports. The others announce
themselves by a file, and start their ranks when the first one has answered it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from wirecost.errors import SpecError, WirecostError
from wirecost.jobs.environment import hook_environment, visible_gpus
from wirecost.jobs.problems import why_unusable
from wirecost.jobs.steps import read_steps
from wirecost.jobs.watch import is_measured
from wirecost.launch.environment import nccl_log_environment
from wirecost.launch.isolate import Isolated
from wirecost.launch.ports import free_port
from wirecost.launch.ranks import GRACE_S, LOG_LINES, read_from
from wirecost.launch.world import World, slurm_world
from wirecost.spec import Device, JobExperiment, Study
from wirecost.storage import write_file
from wirecost.study.collect_job import collect_job
from wirecost.study.environment import describe_environment
from wirecost.study.joined_study import joined_study
from wirecost.study.record_counters import recorded_counters
from wirecost.study.runnable import check_study
from wirecost.study.store import Outcome, Result, Status, Store

ARRIVE_S = 300.0
"""Time in seconds in which all processes of a launch must have arrived."""
POLL_S = 0.2


def run_launched(study: Study, launched: World, out: Path | None) -> list[Result]:
    """Runs this process's rank of a job, and returns the results in the first process of the launch.

    Raises:
        SpecError: if the study asks for more than the job in place.
        StoreError: if the directory holds other results.
        WirecostError: if processes of the launch don't arrive.
    """
    if any(network.emulate is not None for network in study.networks) or len(study.networks) != 1:
        raise SpecError(
            f"under a launcher of {launched.size} processes only --networks native can be measured: "
            "the job runs where the launcher put it"
        )
    if out is None:
        raise SpecError("under a launcher give --out, a directory that the processes on all hosts share")
    check_study(study)
    (experiment,) = study.job_experiments()
    experiment = experiment.model_copy(update={"hosts": 1, "ranks_per_host": launched.size})
    folder = out / "experiments" / f".partial-{experiment.slug}"
    if not launched.is_first:
        _follow(experiment, launched, out, folder)
        return []
    study = study.model_copy(update={"hosts": (f"1x{launched.size}",)})
    return [_lead(study, experiment, launched, out)]


def _lead(study: Study, experiment: JobExperiment, launched: World, out: Path) -> Result:
    store = Store(out)
    study = joined_study(store, study)
    store.check_study_file(study)
    if store.is_used() and store.is_finished(experiment):
        raise SpecError(f"{out}: holds a result of this job; choose another --out")
    with ExitStack() as stack:
        stack.enter_context(store.locked())
        store.save_study(study)
        directory = store.begin(experiment)
        write_file(directory / "environment.json", json.dumps(describe_environment(), indent=1))
        port = free_port()
        _await_arrivals(out, launched, port)
        device = Device.CUDA if visible_gpus(os.environ) else Device.CPU
        counters = stack.enter_context(recorded_counters(directory, device, None))
        counters.start()
        started_s = time.monotonic()
        outcome = _run_rank(experiment, launched, directory, port)
        outcome = outcome.model_copy(update={"seconds": round(time.monotonic() - started_s, 3)})
        counters.stop()
        breakdown = None
        if outcome.status is Status.DONE:
            breakdown = collect_job(experiment, directory, len(os.sched_getaffinity(0)))
        (directory / "experiment.json").unlink(missing_ok=True)
        for leftover in ("dumps", "ended"):
            shutil.rmtree(directory / leftover, ignore_errors=True)
        final = store.publish(experiment, outcome, breakdown)
        for path in (out / "launch").glob("*"):
            path.unlink(missing_ok=True)
        (out / "launch").rmdir()
        return Result(experiment, outcome, breakdown, final)


def _await_arrivals(out: Path, launched: World, port: int) -> None:
    """Answers every process of the launch that has announced itself, until all have.

    Args:
        port: where the ranks meet if the launcher doesn't say.
    """
    folder = out / "launch"
    folder.mkdir(exist_ok=True)
    deadline = time.monotonic() + ARRIVE_S
    while True:
        arrived = {path.name for path in folder.glob("rank-*")}
        ranks = {name.split(".")[0] for name in arrived}
        write_file(folder / "ready.json", json.dumps({"arrived": sorted(arrived), "port": port}))
        if len(ranks) >= launched.size - 1:
            return
        if time.monotonic() > deadline:
            raise WirecostError(
                f"{len(ranks) + 1} of {launched.size} processes of the launch found {out}: "
                "--out must be a directory that all hosts share"
            )
        time.sleep(POLL_S)


def _follow(experiment: JobExperiment, launched: World, out: Path, directory: Path) -> None:
    """Runs a rank that isn't the first."""
    announcement = out / "launch" / f"rank-{launched.rank}.{secrets.token_hex(8)}"
    deadline = time.monotonic() + ARRIVE_S
    while (port := _answered_port(announcement)) is None:
        if time.monotonic() > deadline:
            raise WirecostError(
                f"{out}: rank 0 did not answer here: --out must be a directory that all hosts share"
            )
        time.sleep(POLL_S)
    if not directory.exists():
        raise WirecostError("rank 0 had ended before this rank started; its result tells why")
    _run_rank(experiment, launched, directory, port)


def _answered_port(announcement: Path) -> int | None:
    """Announces this process, and returns the port of the first one's answer, or None before it. The folder may
    not exist yet."""
    try:
        announcement.touch()
        answer = json.loads((announcement.parent / "ready.json").read_bytes())
        return answer["port"] if announcement.name in answer["arrived"] else None
    except (OSError, ValueError):
        return None


def _run_rank(experiment: JobExperiment, launched: World, directory: Path, port: int) -> Outcome:
    """Runs the command of this process until all ranks are measured, one fails, or the time is over."""
    path = directory.absolute() / "logs"
    # This process runs nothing but the command, which inherits its environment.
    for name, value in _of_slurm_task(port).items():
        os.environ.setdefault(name, value)
    os.environ.update(hook_environment(experiment, directory, os.environ))
    os.environ.update(nccl_log_environment(path / "nccl-%h-%p.log"))
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    log_path = path / f"rank-{launched.rank}.log"
    with log_path.open("wb") as log, Isolated(experiment.job.arguments, network=False, output=log) as command:
        outcome = _watch(command.poll, experiment, directory, launched)
    if outcome.status is Status.FAILED:
        tail = read_from(log_path, 0).splitlines()[-LOG_LINES:]
        outcome = outcome.model_copy(update={"log_tail": tuple(tail)})
    return outcome


def _of_slurm_task(port: int) -> dict[str, str]:
    """Returns torchrun's variables for a task of srun, which scripts for torchrun need. Empty otherwise."""
    world = slurm_world(os.environ)
    if world is None or "RANK" in os.environ:
        return {}
    from wirecost.study.step_rank import variables_of

    return variables_of(world, os.environ) | {"MASTER_PORT": str(port)}


def _watch(poll: Callable[[], int | None], experiment: JobExperiment, directory: Path, launched: World) -> Outcome:
    """Waits for the end of this process's command, and in the first process for that of all others."""
    deadline = time.monotonic() + float(experiment.timeout)
    ended = directory / "ended"
    code: int | None = None
    while time.monotonic() < deadline:
        recordings = read_steps(directory)
        if is_measured(recordings, experiment):
            return Outcome(status=Status.DONE)
        if code is None and (code := poll()) is not None:
            ended.mkdir(exist_ok=True)
            write_file(ended / f"rank-{launched.rank}", str(code))
        if any(path.read_text() != "0" for path in ended.glob("rank-*")):
            return _failed(ended)
        if len(list(ended.glob("rank-*"))) == launched.size:
            reason = why_unusable(read_steps(directory), experiment)
            return Outcome(status=Status.FAILED if reason else Status.DONE, reason=reason)
        time.sleep(POLL_S)
    done = {r.rank: len(r.ends_ns) for r in read_steps(directory)}
    slowest = min(range(launched.size), key=lambda rank: done.get(rank, 0))
    reason = (
        f"not finished after {float(experiment.timeout):.0f} s; rank {slowest} had completed "
        f"{done.get(slowest, 0)} iterations; raise the timeout if it only is slow"
    )
    return Outcome(status=Status.FAILED, reason=reason, rank=slowest)


def _failed(ended: Path) -> Outcome:
    """Returns the outcome of a job of which a rank ended with an error."""
    codes = {int(path.name.rpartition("-")[2]): path.read_text() for path in ended.glob("rank-*")}
    rank = min(rank for rank, code in codes.items() if code != "0")
    time.sleep(GRACE_S)
    reports = sorted((ended.parent / "failures").glob("rank-*.json"))
    causes = [json.loads(path.read_bytes()) for path in reports]
    causes.sort(key=lambda cause: cause["kind"] == "lost_peer")
    if causes:
        first = causes[0]
        reason = f"rank {first['rank']}: {first['reason']}"
        return Outcome(status=Status.FAILED, reason=reason, rank=first["rank"], traceback=first["traceback"])
    return Outcome(
        status=Status.FAILED, reason=f"rank {rank} ended with exit code {codes[rank]} and no traceback", rank=rank
    )
