"""Watches the processes of a job until its ranks have recorded their iterations, it ends, or its time is over."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from wirecost.jobs.commands import starts_ranks
from wirecost.jobs.environment import visible_gpus
from wirecost.jobs.output import failed_rank, last_line
from wirecost.jobs.problems import why_unusable
from wirecost.jobs.steps import RankSteps, read_steps
from wirecost.jobs.unhooked import REASON, UNHOOKED_S, hook_loaded, runs_pytorch
from wirecost.launch.ranks import DUMP_S, LOG_LINES, POLL_S, read_from
from wirecost.launch.result import JobResult, JobStatus
from wirecost.launch.stalls import ElapsedTime, StallWatch
from wirecost.launch.started import StartedRanks
from wirecost.launch.waiting import slowest_rank
from wirecost.spec.job import JobExperiment

LOOK_S = 0.5
"""Time in seconds between two looks at the recordings, so that looking doesn't disturb the job."""

ALONE_S = 60.0
"""Time in seconds after which a job without a step has failed if the command on one host has ended by itself."""


def watch_job(ranks: StartedRanks, experiment: JobExperiment, directory: Path) -> JobResult:
    """Waits until a job is measured, has ended, or can't go on.

    The job's processes may still run afterwards. The caller ends them.

    Raises:
        StorageError: if a process could not write a file.
    """
    elapsed, stalls = ElapsedTime(), StallWatch(disk_may_be_slow=True)
    looked_s, alone_s, unhooked_s = 0.0, None, None
    while True:
        codes = ranks.codes()
        elapsed.step()
        if elapsed.seconds - looked_s > LOOK_S or None not in codes or any(codes):
            looked_s = elapsed.seconds
            recordings = read_steps(directory)
            if is_measured(recordings, experiment) or not any(c is None or c for c in codes):
                return _judged(recordings, experiment, directory)
            if any(codes):
                return _failed(ranks, experiment, directory)
            if recordings or 0 not in codes:
                alone_s = None
            elif alone_s is None:
                alone_s = elapsed.seconds
            elif elapsed.seconds - alone_s > ALONE_S:
                return _ended_alone(experiment, codes, directory)
            if not _is_unhooked(ranks, recordings, directory):
                unhooked_s = None
            elif unhooked_s is None:
                unhooked_s = elapsed.seconds
            elif elapsed.seconds - unhooked_s > UNHOOKED_S:
                return JobResult(JobStatus.FAILED, REASON)
        if stall := stalls.look(ranks.pids):
            number = ranks.number(stall.pid)
            return JobResult(JobStatus.FAILED, f"{_name(experiment, number)} made no progress: it {stall.reason}")
        if elapsed.seconds > float(experiment.timeout):
            return _timed_out(ranks, experiment, directory)
        time.sleep(POLL_S)


def is_measured(recordings: Sequence[RankSteps], experiment: JobExperiment) -> bool:
    """Returns whether every rank has recorded all iterations that were asked for."""
    if not recordings:
        return False
    if experiment.job.iteration_regex is not None:
        last = max(experiment.warmup, 1) + experiment.iterations
        counting = [r for r in recordings if r.ends_ns]
        return bool(counting) and all(len(r.ends_ns) >= last for r in counting)
    ended = [r for r in recordings if r.ended in ("done", "error")]
    return len(ended) == len(recordings) >= recordings[0].world_size and not _more_expected(recordings, experiment)


def _more_expected(recordings: Sequence[RankSteps], experiment: JobExperiment) -> bool:
    """Returns whether ranks that train apart from these will record too."""
    launched = max(experiment.ranks, *(r.launched_world_size for r in recordings))
    return recordings[0].world_size == 1 and len(recordings) < launched


def _judged(recordings: Sequence[RankSteps], experiment: JobExperiment, directory: Path) -> JobResult:
    reason = why_unusable(recordings, experiment)
    if reason is None:
        return JobResult(JobStatus.DONE)
    output = _output(directory, 0)
    if not recordings and (last := last_line(output)) is not None:
        reason = f"{reason}; its last line of output: {last}"
    return JobResult(JobStatus.FAILED, reason, log_tail=output[-LOG_LINES:])


def _is_unhooked(ranks: StartedRanks, recordings: Sequence[RankSteps], directory: Path) -> bool:
    """Returns whether the job runs PyTorch in processes of this machine, none of which has the hook."""
    if recordings or hook_loaded(directory):
        return False
    return runs_pytorch(ranks.pids())


def _ended_alone(experiment: JobExperiment, codes: Sequence[int | None], directory: Path) -> JobResult:
    """Returns the result of a job without a step, of which one process has ended and others still run."""
    ended, running = codes.index(0), codes.index(None)
    output = _output(directory, ended)
    last = last_line(output)
    said = f"its last line of output: {last}" if last else "it wrote no output"
    reason = (
        f"{_name(experiment, ended)} ended without a step of an optimizer, but {_name(experiment, running)} still "
        f"runs: they don't train together; {said}"
    )
    return JobResult(JobStatus.FAILED, reason, ended, log_tail=output[-LOG_LINES:])


def _output(directory: Path, number: int) -> tuple[str, ...]:
    """Returns the last lines of the output of a process that was started."""
    path = directory / "logs" / f"rank-{number}.log"
    return tuple(read_from(path, 0).splitlines()) if path.exists() else ()


def _name(experiment: JobExperiment, number: int) -> str:
    launcher = starts_ranks(experiment.job.arguments, gpus=bool(visible_gpus(os.environ)))
    return f"the launcher on host {number}" if launcher else f"rank {number}"


def _failed(ranks: StartedRanks, experiment: JobExperiment, directory: Path) -> JobResult:
    """Returns the result of a job of which a process failed. Without a traceback, its last line of output is
    named."""
    result = ranks.failed()
    code = result.exit_code
    if result.rank is None or code is None or code < 0:
        return result
    output = _output(directory, result.rank) or result.log_tail
    last = last_line(output)
    said = f"; its last line of output: {last}" if last else " and wrote no output"
    how = failed_rank(output) or f"{_name(experiment, result.rank)} ended with exit code {code}"
    reason = f"{how}{said}"
    return JobResult(result.status, reason, result.rank, None, result.log_tail, result.memory)


def _timed_out(ranks: StartedRanks, experiment: JobExperiment, directory: Path) -> JobResult:
    """Returns the result of a job whose time is over, with the rank that the others wait for if it can be told."""
    files = {int(m[2]): (m[1], p) for p in (directory / "dumps").glob("*.txt") if (m := _DUMP.fullmatch(p.name))}
    if not ranks.pids():
        files = {}  # these process IDs belong to other machines
    for pid in files:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    time.sleep(DUMP_S)
    recordings = read_steps(directory)
    count = max([experiment.ranks, *(r.world_size for r in recordings)])
    of_pid = {int(r.name.rpartition("-")[2]): r.rank for r in recordings if r.name.rpartition("-")[2].isdigit()}
    done, dumps = [0] * count, [""] * count
    for recording in recordings:
        done[recording.rank] = len(recording.ends_ns)
    for pid, (named, path) in files.items():
        rank = of_pid.get(pid, int(named) if named.isdigit() else count)
        if rank < count and (text := read_from(path, 0)):
            dumps[rank] = text
    slowest = slowest_rank(done, dumps)
    if not recordings:
        last = last_line(_output(directory, 0))
        said = f"; the last line of output: {last}" if last else ""
        reason = (
            f"not finished after {float(experiment.timeout):.0f} s, and no step of an optimizer was seen{said}"
        )
        return JobResult(JobStatus.TIMED_OUT, reason, log_tail=_output(directory, 0)[-LOG_LINES:])
    total = max(experiment.warmup, 1) + experiment.iterations + experiment.profile_iterations
    who = f"rank {slowest}" if slowest is not None else "the slowest rank"
    completed = done[slowest] if slowest is not None else min(done)
    reason = (
        f"not finished after {float(experiment.timeout):.0f} s; {who} had completed {completed} of {total} "
        "iterations; raise the timeout if it only is slow"
    )
    tail = tuple(dumps[slowest].splitlines()[:20]) if slowest is not None else ()
    return JobResult(JobStatus.TIMED_OUT, reason, slowest, log_tail=tail)


_DUMP = re.compile(r"(\d+|unknown)-(\d+)\.txt")
