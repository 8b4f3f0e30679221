"""Runs one experiment in a separate process: `python -m wirecost.study.cell DIRECTORY [WORKER...]`.

The process builds the network, measures it, starts the ranks, watches them and writes `outcome.json`. It runs
isolated (see `wirecost.launch.isolate`), so that nothing is left behind however it ends. The ranks are forked from
it, and it is forked from one process for the whole study (`wirecost.launch.preloaded`), so that PyTorch is loaded
once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from wirecost.emulation.hosts import EmulatedHosts
from wirecost.emulation.network import open_network
from wirecost.emulation.probe import too_slow
from wirecost.emulation.segments import read_segments_of_hosts
from wirecost.errors import WirecostError
from wirecost.jobs.environment import visible_gpus
from wirecost.jobs.measured_logs import MeasuredLogs
from wirecost.jobs.start import start_job
from wirecost.jobs.watch import watch_job
from wirecost.launch.ranks import Ranks, count_lines
from wirecost.launch.result import JobResult, JobStatus
from wirecost.launch.started import StartedRanks
from wirecost.spec import AnyExperiment, Device, Experiment, JobExperiment
from wirecost.storage import run_to_exit_code, write_file
from wirecost.study.busy import OthersWatch, busy_fraction
from wirecost.study.elsewhere import is_elsewhere, runs_here, start_elsewhere
from wirecost.study.record_counters import recorded_counters
from wirecost.study.store import Outcome, Status
from wirecost.train.worker import preload as preload_rank
from wirecost.train.worker import run_here

THREADS_BESIDE_A_GPU = 4
"""Number of threads of a rank that computes on a GPU. One thread launches kernels; more would disturb other ranks.
"""


def run_cell(directory: Path, worker: Sequence[str] = ()) -> Outcome:
    """Runs the experiment in `directory` and returns its outcome.

    Args:
        worker: another command for a rank, called with the directory.
    """
    machine = {"busy_fraction_before": busy_fraction()}
    others = OthersWatch()
    outcome = _run(directory, worker)
    if not is_elsewhere(directory):  # such ranks are no children of this process
        machine["others_fraction_during"] = others.fraction()
    write_file(directory / "machine.json", json.dumps(machine))
    return outcome


def _run(directory: Path, worker: Sequence[str]) -> Outcome:
    experiment = _read_experiment(directory)
    with ExitStack() as stack:
        try:
            running = stack.enter_context(open_network(experiment.network, experiment.hosts))
        except WirecostError as error:
            return Outcome(status=Status.SKIPPED, reason=str(error))
        if running.link is not None:
            (directory / "link.json").write_text(running.link.model_dump_json(indent=1))
            if reason := too_slow(running.link):
                return Outcome(status=Status.SKIPPED, reason=reason)
        if is_elsewhere(directory):
            return _run_elsewhere(experiment, directory)
        logs = stack.enter_context(MeasuredLogs(directory))
        if isinstance(experiment, JobExperiment):
            device = Device.CUDA if visible_gpus(os.environ) else Device.CPU
            counters = stack.enter_context(recorded_counters(directory, device, running.hosts))
            ranks = stack.enter_context(start_job(experiment, directory, running.hosts))
        else:
            counters = stack.enter_context(recorded_counters(directory, experiment.device, running.hosts))
            ranks = stack.enter_context(_start_ranks(experiment, directory, running.hosts, worker))
        counters.start()
        before = read_segments_of_hosts(running.hosts) if running.hosts else None
        if isinstance(experiment, JobExperiment):
            outcome = _watched_job(ranks, experiment, directory, logs)
        else:
            outcome = _watch(ranks, experiment, directory)
        after = read_segments_of_hosts(running.hosts) if running.hosts else None
        if before and after:
            (directory / "tcp.json").write_text(after.since(before).model_dump_json())
        return outcome


def _run_elsewhere(experiment: AnyExperiment, directory: Path) -> Outcome:
    """Runs an experiment whose ranks another launcher starts."""
    device = Device.CUDA if visible_gpus(os.environ) else Device.CPU
    with ExitStack() as stack:
        if runs_here(directory):
            counters = stack.enter_context(recorded_counters(directory, device, None))
        else:
            counters = None
        logs = stack.enter_context(MeasuredLogs(directory))
        step = stack.enter_context(start_elsewhere(directory, experiment))
        if counters is not None:
            counters.start()
        if isinstance(experiment, JobExperiment):
            return _watched_job(step, experiment, directory, logs)
        result = step.watch(float(experiment.timeout), partial(_samples, directory))
        return _outcome(result, experiment, directory)


def _read_experiment(directory: Path) -> Experiment | JobExperiment:
    content = (directory / "experiment.json").read_bytes()
    kind = JobExperiment if "job" in json.loads(content) else Experiment
    return kind.model_validate_json(content)


def _start_ranks(
    experiment: Experiment, directory: Path, hosts: EmulatedHosts | None, worker: Sequence[str]
) -> Ranks:
    """Starts the ranks that train a model, or `worker` for each of them."""
    return Ranks(
        [*worker, str(directory)] if worker else partial(run_here, directory),
        directory,
        experiment.ranks,
        per_host=experiment.ranks_per_host,
        network=experiment.network,
        hosts=hosts,
        nccl_log=experiment.device is Device.CUDA,
        most_threads=THREADS_BESIDE_A_GPU if experiment.device is Device.CUDA else None,
    )


def _watched_job(ranks: StartedRanks, experiment: JobExperiment, directory: Path, logs: MeasuredLogs) -> Outcome:
    result = watch_job(ranks, experiment, directory)
    if result.status is JobStatus.DONE:
        logs.measured()
    return outcome_of_job(result)


def outcome_of_job(result: JobResult) -> Outcome:
    """Returns the outcome of a command's run."""
    status = {JobStatus.DONE: Status.DONE, JobStatus.OUT_OF_MEMORY: Status.OOM}.get(result.status, Status.FAILED)
    return Outcome(
        status=status,
        reason=result.reason,
        rank=result.rank,
        traceback=result.traceback,
        log_tail=result.log_tail,
        memory=result.memory,
    )


def _watch(ranks: Ranks, experiment: Experiment, directory: Path) -> Outcome:
    result = ranks.watch(
        float(experiment.timeout),
        lambda rank: _samples(directory, rank),
        disk_may_be_slow=experiment.periodic.checkpoint_every > 0,
    )
    return _outcome(result, experiment, directory)


def _outcome(result: JobResult, experiment: Experiment, directory: Path) -> Outcome:
    timeout_s = float(experiment.timeout)
    if result.status is JobStatus.DONE:
        return Outcome(status=Status.DONE)
    reason = result.reason
    if result.status is JobStatus.TIMED_OUT:
        completed = [_samples(directory, rank) for rank in range(experiment.ranks)]
        rank = result.rank if result.rank is not None else completed.index(min(completed))
        who = f"rank {rank}" if result.rank is not None else "the slowest rank"
        reason = (
            f"not finished after {timeout_s:.0f} s; {who} had completed "
            f"{completed[rank]} of {experiment.warmup + experiment.iterations} iterations; "
            "raise 'timeout' if it only is slow"
        )
    return Outcome(
        status=Status.OOM if result.status is JobStatus.OUT_OF_MEMORY else Status.FAILED,
        reason=reason,
        rank=result.rank,
        traceback=result.traceback,
        log_tail=result.log_tail,
        memory=result.memory,
    )


def _samples(directory: Path, rank: int) -> int:
    return count_lines(directory / "samples" / f"rank-{rank}.jsonl")


def preload() -> None:
    """Imports the modules that ranks need, in the process from which experiments are forked."""
    preload_rank()


def main(argv: Sequence[str]) -> int:
    directory = Path(argv[0])
    return run_to_exit_code(
        lambda: write_file(directory / "outcome.json", run_cell(directory, argv[1:]).model_dump_json())
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
