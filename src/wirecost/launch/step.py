"""Starts the processes of a distributed job on the nodes of a Slurm allocation, as one step of srun."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from wirecost.launch.environment import network_environment
from wirecost.launch.failures import read_failures, result_of, storage_paths
from wirecost.launch.processes import END_S, die_with_parent
from wirecost.launch.ranks import LOG_LINES, POLL_S
from wirecost.launch.result import JobResult, JobStatus
from wirecost.launch.started import Elsewhere
from wirecost.spec.network import Network
from wirecost.storage import StorageError, fault_of_exit

CONTAINER_IMAGE = "WIRECOST_CONTAINER_IMAGE"
"""Variable with the image in which srun of the pyxis plugin starts the ranks."""
_TASK_ENDED = re.compile(
    r"tasks? (\d+)[\d,-]*: (Killed|Segmentation fault|Aborted|Bus error|Terminated|Exited with[^\n]*)"
)
_OUT_OF_MEMORY = re.compile(r"oom[-_ ]kill|OUT_OF_MEMORY|exceeded .{0,20}memory limit", re.IGNORECASE)
_LOST_NODE = re.compile(r"NODE FAILURE|Node failure|Communication connection failure|DUE TO NODE", re.IGNORECASE)
_TIME_LIMIT = re.compile(r"DUE TO TIME LIMIT|CANCELLED AT|DUE TO PREEMPTION")


class StepRanks(Elsewhere):
    """The processes of one job as the tasks of a Slurm step. Leaving the context ends those that still run.

    Args:
        command: the command of each task. It finds its rank in Slurm's variables.
        directory: contains `logs/`, which the caller creates and the tasks' logs go to. All nodes see it.
        count: number of ranks.
        per_host: number of ranks on each node.
        network: the network between the nodes, whose variables the tasks get.
        environment: further variables of the tasks.
        mounts: further folders that a container gets, under the same path.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        count: int,
        *,
        per_host: int,
        network: Network,
        environment: Mapping[str, str] | None = None,
        mounts: Sequence[Path] = (),
    ) -> None:
        self.directory = directory
        self.count = count
        variables = {
            **os.environ,
            **network_environment(network, 0, emulated=False),
            **(environment or {}),
            "PYTHONUNBUFFERED": "1",
        }
        parent = os.getpid()
        with (directory / "logs" / "srun.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*srun_command(count, per_host, directory, mounts), *command],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509
            )

    def __enter__(self) -> StepRanks:
        return self

    def __exit__(self, *_: object) -> None:
        # srun passes SIGTERM on to the tasks. When it is killed itself, Slurm ends the tasks with the job.
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(END_S)

    def watch(self, timeout_s: float, done: Callable[[int], int]) -> JobResult:
        """Waits until all tasks have ended, one of them fails, or the time limit is reached.

        Args:
            timeout_s: time limit in seconds.
            done: returns how many steps a rank has completed.

        Returns:
            The result. With `TIMED_OUT` the caller supplies the reason; its rank is the slowest one.

        Raises:
            StorageError: if a rank could not write or read a file. Such a job has no result.
        """
        deadline = time.monotonic() + timeout_s
        while (code := self.process.poll()) is None:
            if time.monotonic() > deadline:
                completed = [done(rank) for rank in range(self.count)]
                return JobResult(JobStatus.TIMED_OUT, None, completed.index(min(completed)))
            time.sleep(POLL_S)
        return JobResult(JobStatus.DONE) if code == 0 else self.failed()

    def codes(self) -> list[int | None]:
        """Returns the exit code of srun, None while it runs."""
        return [self.process.poll()]

    def failed(self) -> JobResult:
        """Returns the result of a step that failed, with the rank or the node that caused it.

        Raises:
            StorageError: if a rank could not write or read a file. Such a job has no result.
        """
        code = self.process.returncode
        text = (self.directory / "logs" / "srun.log").read_text(errors="replace")
        ended = [(int(match[1]), match[2]) for match in _TASK_ENDED.finditer(text)]
        if fault := fault_of_exit(code):
            raise StorageError(next(iter(storage_paths(self.directory)), self.directory), fault)
        killed = [(rank, how) for rank, how in ended if not how.startswith("Exited") and how != "Terminated"]
        if _OUT_OF_MEMORY.search(text):
            rank = killed[0][0] if killed else None
            reason = "memory ran out: Slurm reports that a task was killed for it"
            return JobResult(JobStatus.OUT_OF_MEMORY, reason, rank, log_tail=self._log_tail(rank))
        if _LOST_NODE.search(text):
            return JobResult(JobStatus.FAILED, f"a node was lost: {_last_line(text)}", log_tail=_tail(text))
        failures = read_failures(self.directory)
        # A rank that was killed could not report; the others lost their peer.
        if failures and not (killed and all(failure["kind"] == "lost_peer" for failure in failures)):
            return result_of(failures, {rank for rank, _ in ended[:1]}, self._log_tail)
        if _TIME_LIMIT.search(text):
            return JobResult(JobStatus.FAILED, f"Slurm ended it: {_last_line(text)}", log_tail=_tail(text))
        if killed:
            rank, how = killed[0]
            return JobResult(JobStatus.FAILED, f"rank {rank} ended: {how}", rank, log_tail=self._log_tail(rank))
        if ended and (match := re.search(r"exit code (\d+)", ended[0][1])):
            rank, exited = ended[0][0], int(match[1])
            reason = f"rank {rank} ended with exit code {exited} and no traceback"
            return JobResult(JobStatus.FAILED, reason, rank, log_tail=self._log_tail(rank), exit_code=exited)
        reason = f"srun ended with exit code {code}: {_last_line(text) or 'no message'}"
        return JobResult(JobStatus.FAILED, reason, ended[0][0] if ended else None, log_tail=_tail(text))

    def _log_tail(self, rank: int | None) -> tuple[str, ...]:
        path = self.directory / "logs" / f"rank-{rank}.log"
        return _tail(path.read_text(errors="replace")) if rank is not None and path.exists() else ()


def srun_command(count: int, per_host: int, directory: Path, mounts: Sequence[Path] = ()) -> list[str]:
    """Returns the command line of srun for a step of `count` tasks, `per_host` on each node.

    Args:
        directory: contains `logs/` for the output of the tasks. A container gets it too.
        mounts: further folders that a container gets.
    """
    image = os.environ.get(CONTAINER_IMAGE)
    folders = ",".join(f"{folder}:{folder}" for folder in (directory, *mounts))
    container = [f"--container-image={image}", f"--container-mounts={folders}"] if image else []
    return [
        "srun",
        f"--nodes={-(-count // per_host)}",
        f"--ntasks={count}",
        f"--ntasks-per-node={per_host}",
        "--kill-on-bad-exit=1",
        "--cpu-bind=none",
        f"--output={str(directory).replace('%', '%%')}/logs/rank-%t.log",
        *container,
    ]


def _tail(text: str) -> tuple[str, ...]:
    return tuple(text.splitlines()[-LOG_LINES:])


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""
