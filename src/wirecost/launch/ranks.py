"""Starts the processes of a distributed job on emulated or real hosts of this machine, and watches them."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from wirecost.breakdown.memory import MemoryKind, OutOfMemory
from wirecost.emulation.hosts import EmulatedHosts
from wirecost.launch.environment import local_sockets, nccl_log_environment, network_environment
from wirecost.launch.failures import causes_of, read_failures, result_of, storage_paths
from wirecost.launch.forked import Forked
from wirecost.launch.memory import largest_child_bytes
from wirecost.launch.ports import free_port
from wirecost.launch.processes import END_S, die_with_parent, mapped_shared_memory, remove_shared_memory
from wirecost.launch.rendezvous import MEETING
from wirecost.launch.result import JobResult, JobStatus
from wirecost.launch.stalls import ElapsedTime, StallWatch
from wirecost.launch.waiting import slowest_rank
from wirecost.spec.network import Network
from wirecost.storage import StorageError, fault_of_exit

MASTER_PORT = 29500
GRACE_S = 2.0
"""Time in seconds that the other ranks have to report their failures. The first rank to end isn't always the
cause."""
LOG_LINES = 20
POLL_S = 0.05
DUMP_S = 0.5
"""Time in seconds that ranks have to write a stack dump."""
DUMP_BYTES = 1 << 20


class Ranks:
    """The processes of one job, with torchrun's environment variables. Leaving the context kills those that
    still run.

    Args:
        command: the command of each rank, or a function that a forked child calls and that returns the exit code.
        directory: contains `logs/` for rank-R.log, which the caller creates, and `failures/`, where ranks report
            failures (`wirecost.launch.rank.report_failure`).
        count: number of ranks.
        per_host: number of ranks on each host.
        network: the network between the hosts.
        hosts: the emulated hosts, or None for ranks on this machine only.
        nccl_log: whether NCCL logs to logs/nccl-R.log.
        most_threads: largest number of threads of each rank. None divides all cores among the ranks.
    """

    def __init__(
        self,
        command: Sequence[str] | Callable[[], int],
        directory: Path,
        count: int,
        *,
        per_host: int,
        network: Network,
        hosts: EmulatedHosts | None,
        nccl_log: bool = False,
        most_threads: int | None = None,
    ) -> None:
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes] | Forked] = []
        self._since_s = time.time()
        self.oom_kills_before = oom_kills()
        threads = max(1, len(os.sched_getaffinity(0)) // count)
        threads = min(threads, most_threads or threads)
        address = hosts.address(0) if hosts else "127.0.0.1"
        port = MASTER_PORT if hosts else free_port()
        # Another program could take the port before rank 0 listens, so that our own ranks choose one then.
        meeting = {} if hosts else {MEETING: secrets.token_hex(8)}
        for rank in range(count):
            host = rank // per_host
            environment = {
                **({} if hosts else local_sockets(network)),
                **os.environ,
                **network_environment(network, host, emulated=hosts is not None),
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_RANK": str(rank % per_host),
                "LOCAL_WORLD_SIZE": str(per_host),
                "MASTER_ADDR": address,
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": str(threads),
                "PYTHONUNBUFFERED": "1",
                **meeting,
            }
            if nccl_log:
                environment |= nccl_log_environment(directory / "logs" / f"nccl-{rank}.log")
            enter = partial(hosts.enter, host) if hosts else None
            bound = partial(_enter_bound, os.getpid(), enter)
            with (directory / "logs" / f"rank-{rank}.log").open("wb") as log:
                self.processes.append(
                    Forked(command, environment, log, enter)
                    if callable(command)
                    else subprocess.Popen(
                        list(command),
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        preexec_fn=bound,  # noqa: PLW1509
                    )
                )

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        running = [process.pid for process in self.processes if process.poll() is None]
        files = mapped_shared_memory(running)
        for process in self.processes:
            process.kill()
        # A process that hangs in the kernel may not end. The caller that ends this process handles that.
        deadline = time.monotonic() + END_S
        while any(process.poll() is None for process in self.processes) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        remove_shared_memory(files, self._since_s)

    def watch(
        self,
        timeout_s: float,
        done: Callable[[int], int],
        *,
        renew: bool = False,
        disk_may_be_slow: bool = False,
    ) -> JobResult:
        """Waits until all ranks have ended, a rank fails or stalls, or the time limit is reached.

        Args:
            timeout_s: time limit in seconds.
            done: returns how many steps a rank has completed.
            renew: whether the time limit applies to each step instead of the whole job.
            disk_may_be_slow: whether a rank may wait for a disk for longer than `STALLED_S`.

        Returns:
            The result. With `TIMED_OUT` the caller supplies the reason.

        Raises:
            StorageError: if a rank could not write or read a file. Such a job has no result.
        """
        elapsed = ElapsedTime()
        stalls = StallWatch(disk_may_be_slow=disk_may_be_slow)
        limit_s = timeout_s
        before: list[int] = []
        while True:
            codes = [p.poll() for p in self.processes]
            if any(codes):
                return self.failed()
            if all(code == 0 for code in codes):
                return JobResult(JobStatus.DONE)
            elapsed.step()
            if renew and (now := [done(r) for r in range(len(self.processes))]) != before:
                before, limit_s = now, elapsed.seconds + timeout_s
            if stall := stalls.look(lambda: [p.pid for p in self.processes if p.poll() is None]):
                rank = [p.pid for p in self.processes].index(stall.pid)
                reason = f"rank {rank} made no progress: process {stall.pid} {stall.reason}"
                return JobResult(JobStatus.FAILED, reason, rank, log_tail=self._log_tail(rank))
            if elapsed.seconds > limit_s:
                return self._timed_out([done(r) for r in range(len(self.processes))])
            time.sleep(POLL_S)

    def codes(self) -> list[int | None]:
        """Returns the exit code of each rank, None while it runs."""
        return [process.poll() for process in self.processes]

    def pids(self) -> list[int]:
        """Returns the process IDs of the ranks that still run."""
        return [process.pid for process in self.processes if process.poll() is None]

    def number(self, pid: int) -> int:
        """Returns the rank with a process ID."""
        return [process.pid for process in self.processes].index(pid)

    def failed(self) -> JobResult:
        """Returns the result of a job in which a rank has failed, with the rank that caused it."""
        ended_first = {r for r, p in enumerate(self.processes) if p.returncode}
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and any(p.poll() is None for p in self.processes):
            time.sleep(POLL_S)
        for process in self.processes:
            if fault := fault_of_exit(process.returncode):
                raise StorageError(self._fault_path(), fault)
        failures = read_failures(self.directory)
        killed = [r for r in ended_first if (self.processes[r].returncode or 0) < 0]
        # A killed rank can't report the cause.
        if killed and not any(f["rank"] in ended_first for f in causes_of(failures, ended_first)):
            return self._killed(min(killed))
        if not failures:
            rank = min(ended_first)
            code = self.processes[rank].returncode
            reason = f"rank {rank} ended with exit code {code} and no traceback"
            return JobResult(JobStatus.FAILED, reason, rank, log_tail=self._log_tail(rank), exit_code=code)
        return result_of(failures, ended_first, self._log_tail)

    def _fault_path(self) -> object:
        """Returns the file that a rank could not write or read, or the job's directory if no rank could report
        it."""
        return next(iter(storage_paths(self.directory)), self.directory)

    def _killed(self, rank: int) -> JobResult:
        """Returns the result of a job in which a signal killed `rank`."""
        number = -(self.processes[rank].returncode or 0)
        status, hint = self._kill_status(number)
        reason = f"rank {rank} was killed by {signal.Signals(number).name}{hint}"
        memory = None
        if status is JobStatus.OUT_OF_MEMORY:
            # Of a killed process, the kernel reports only the largest resident set.
            peak = largest_child_bytes()
            memory = OutOfMemory(kind=MemoryKind.RESIDENT_SET if peak else None, peak_bytes=peak)
            reason = f"{reason}; {memory.words}"
        return JobResult(status, reason, rank, log_tail=self._log_tail(rank), memory=memory)

    def _kill_status(self, number: int) -> tuple[JobStatus, str]:
        """Returns the status after signal `number` killed a rank, and what to add to the reason."""
        if number != signal.SIGKILL:
            return JobStatus.FAILED, ""
        before, now = self.oom_kills_before, oom_kills()
        if before is None or now is None:
            return JobStatus.FAILED, "; the kernel sends this signal when memory runs out"
        if now > before:
            hint = ": memory ran out, and the kernel killed a process for it during the run"
            return JobStatus.OUT_OF_MEMORY, hint
        return JobStatus.FAILED, "; memory did not run out: the kernel killed no process for that during the run"

    def _timed_out(self, done: Sequence[int]) -> JobResult:
        """Returns the result of a job that reached its time limit, with the rank that the others wait for.

        Args:
            done: number of completed steps of each rank.
        """
        logs = [self.directory / "logs" / f"rank-{rank}.log" for rank in range(len(self.processes))]
        sizes = [log.stat().st_size for log in logs]
        # Every rank writes a stack dump to its log.
        for process in self.processes:
            process.send_signal(signal.SIGUSR1)
        time.sleep(DUMP_S)
        dumps = [read_from(log, size) for log, size in zip(logs, sizes, strict=True)]
        slowest = slowest_rank(done, dumps)
        log_tail = () if slowest is None else self._log_tail(slowest)
        return JobResult(JobStatus.TIMED_OUT, None, slowest, log_tail=log_tail)

    def _log_tail(self, rank: int) -> tuple[str, ...]:
        return tuple(read_from(self.directory / "logs" / f"rank-{rank}.log", 0).splitlines()[-LOG_LINES:])


def read_from(path: Path, position: int) -> str:
    """Returns the text of a file from a position in bytes on, at most its last `DUMP_BYTES` bytes."""
    with path.open("rb") as file:
        file.seek(max(position, path.stat().st_size - DUMP_BYTES))
        return file.read(DUMP_BYTES).decode(errors="replace")


def _enter_bound(parent: int, enter: Callable[[], object] | None) -> None:
    """Makes this process, a child, end with its parent, and then moves it to its host."""
    die_with_parent(parent)
    if enter:
        enter()


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """Returns how many processes the kernel has killed since boot because memory ran out.

    Kills due to the limits of control groups and of the machine count. Returns None if the kernel doesn't
    report it.
    """
    try:
        match = re.search(r"^oom_kill (\d+)$", vmstat.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


def count_lines(path: Path) -> int:
    """Returns the number of complete lines of a file, or 0 if it doesn't exist."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
