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
from wirecost.jobs.problems import why_unusable
from wirecost.jobs.steps import RankSteps, read_steps
from wirecost.launch.ranks import DUMP_S, POLL_S, read_from
from wirecost.launch.result import JobResult, JobStatus
from wirecost.launch.stalls import ElapsedTime, StallWatch
from wirecost.launch.started import StartedRanks
from wirecost.launch.waiting import slowest_rank
from wirecost.spec.job import JobExperiment

LOOK_S = 0.5
"""Time in seconds between two looks at the recordings, so that looking doesn't disturb the job."""


def watch_job(ranks: StartedRanks, experiment: JobExperiment, directory: Path) -> JobResult:
    """Waits until a job is measured, has ended, or can't go on.

    The job's processes may still run afterwards. The caller ends them.

    Raises:
        StorageError: if a process could not write a file.
    """
    elapsed, stalls = ElapsedTime(), StallWatch(disk_may_be_slow=True)
    looked_s = 0.0
    while True:
        codes = ranks.codes()
        elapsed.step()
        if elapsed.seconds - looked_s > LOOK_S or None not in codes or any(codes):
            looked_s = elapsed.seconds
            recordings = read_steps(directory)
            if is_measured(recordings, experiment) or not any(c is None or c for c in codes):
                return _judged(recordings, experiment)
            if any(codes):
                return _failed(ranks, experiment)
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


def _judged(recordings: Sequence[RankSteps], experiment: JobExperiment) -> JobResult:
    reason = why_unusable(recordings, experiment)
    return JobResult(JobStatus.DONE) if reason is None else JobResult(JobStatus.FAILED, reason)


def _name(experiment: JobExperiment, number: int) -> str:
    launcher = starts_ranks(experiment.job.arguments, gpus=bool(visible_gpus(os.environ)))
    return f"the launcher on host {number}" if launcher else f"rank {number}"


def _failed(ranks: StartedRanks, experiment: JobExperiment) -> JobResult:
    """Returns the result of a job of which a process failed. Without a traceback, its last line of output is
    named."""
    result = ranks.failed()
    code = result.exit_code
    if result.rank is None or code is None or code < 0:
        return result
    last = next((line.strip() for line in reversed(result.log_tail) if line.strip()), None)
    said = f"; its last line of output: {last[:300]}" if last else " and wrote no output"
    reason = f"{_name(experiment, result.rank)} ended with exit code {code}{said}"
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
