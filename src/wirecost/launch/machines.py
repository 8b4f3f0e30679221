"""Starts the processes of a distributed job on machines that the user names, by torchrun on each of them."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from wirecost.errors import SpecError
from wirecost.launch.environment import network_environment
from wirecost.launch.failures import read_failures, result_of, storage_paths
from wirecost.launch.processes import END_S, die_with_parent
from wirecost.launch.ranks import LOG_LINES, POLL_S
from wirecost.launch.remote_agent import STARTED
from wirecost.launch.rendezvous import MEETING
from wirecost.launch.result import JobResult, JobStatus
from wirecost.launch.started import Elsewhere
from wirecost.spec.network import Network
from wirecost.storage import StorageError, fault_of_exit

SSH = "ssh -o BatchMode=yes -o ServerAliveInterval=15 {host}"
"""Command that runs another one on a host. It never asks for a password, and notices a host that is gone."""
PORTS = 20000, 32768
"""Ports of which torchrun's own processes get one. Linux gives none of them to other connections by default."""
GRACE_S = 10.0
"""Time that the launchers of other machines have to end after the first one failed."""
_FAILED_RANK = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")


@dataclass(frozen=True)
class Machines:
    """Machines that the user names, and how they are reached.

    Attributes:
        hosts: their names, each with the address by which the others reach it.
        remote: command that runs another one on `{host}`.
    """

    hosts: tuple[tuple[str, str], ...]
    remote: str = SSH

    @staticmethod
    def parse(text: str, remote: str | None = None) -> Machines:
        """Returns the machines of a text like `node1,node2`, or `node1=192.0.2.1,node2=192.0.2.2`.

        Raises:
            SpecError: if a name is empty or appears twice, or the remote command doesn't name its host.
        """
        entries = [entry.strip().partition("=") for entry in text.split(",")]
        hosts = tuple((name, address or name) for name, _, address in entries)
        for name, address in hosts:
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*", name) or not re.fullmatch(
                r"[\w.:%-]+", address
            ):
                raise SpecError(f"--on: '{name}' is no host; write it as node1,node2 or node1=192.0.2.1,node2=...")
        names = [name for name, _ in hosts]
        if len(set(names)) < len(names):
            raise SpecError("--on: a host is named twice; each of a job's hosts is another machine")
        remote = SSH if remote is None else remote
        try:
            words = shlex.split(remote)
        except ValueError as error:
            raise SpecError(f"--remote: can't be split into words: {error}") from error
        if not any("{host}" in word for word in words):
            raise SpecError("--remote: doesn't say where the host stands; write it as 'ssh {host}'")
        return Machines(hosts, remote)

    def command(self, host: int) -> list[str]:
        """Returns the command that starts the agent on a host."""
        name = self.hosts[host][0]
        words = [word.replace("{host}", name) for word in shlex.split(self.remote)]
        return [*words, sys.executable, "-m", "wirecost.launch.remote_agent"]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(content: bytes) -> Machines:
        data = json.loads(content)
        return Machines(tuple((name, address) for name, address in data["hosts"]), data["remote"])


class MachineRanks(Elsewhere):
    """The processes of one job, which torchrun starts on each machine. Leaving the context ends those that run.

    Args:
        module: module that each rank runs, with its arguments.
        directory: contains `logs/`, which the caller creates. All machines see it under this path.
        per_host: number of ranks on each machine.
        network: the network between the machines, whose variables the ranks get.
        environment: further variables of the ranks.
    """

    def __init__(
        self,
        module: Sequence[str],
        directory: Path,
        machines: Machines,
        count: int,
        *,
        per_host: int,
        network: Network,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.count = count
        self.machines = machines
        self._undo = ExitStack()
        self.processes: list[subprocess.Popen[bytes]] = []
        port = random.SystemRandom().choice(range(*PORTS))
        hosts = count // per_host
        variables = {
            **(environment or {}),
            **network_environment(network, 0, emulated=False),
            MEETING: secrets.token_hex(8),
            "PYTHONUNBUFFERED": "1",
        }
        try:
            for host in range(hosts):
                command = [
                    sys.executable, "-m", "torch.distributed.run", f"--nnodes={hosts}", f"--node-rank={host}",
                    f"--nproc-per-node={per_host}", f"--master-addr={machines.hosts[0][1]}",
                    f"--master-port={port}", "--max-restarts=0", "-m", *module,
                ]  # fmt: skip
                self._start(host, command, variables)
        except BaseException:
            self.__exit__()
            raise

    def _start(self, host: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        parent = os.getpid()
        with self._log(host).open("wb") as log:
            process = self._undo.enter_context(
                subprocess.Popen(
                    self.machines.command(host),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509
                )
            )
        self.processes.append(process)
        assert process.stdin is not None
        job = json.dumps({"command": command, "environment": environment})
        with suppress(BrokenPipeError):  # its exit code says why
            process.stdin.write(job.encode() + b"\n")
            process.stdin.flush()

    def __enter__(self) -> MachineRanks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()  # the agent ends what it started
        deadline = time.monotonic() + 2 * END_S
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        self._undo.close()

    def watch(self, timeout_s: float, done: Callable[[int], int]) -> JobResult:
        """Waits until all machines have ended, one of them fails, or the time limit is reached.

        Args:
            timeout_s: time limit in seconds.
            done: returns how many steps a rank has completed.

        Returns:
            The result. With `TIMED_OUT` the caller supplies the reason; its rank is the slowest one.

        Raises:
            StorageError: if a rank could not write or read a file. Such a job has no result.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            codes = self.codes()
            if all(code == 0 for code in codes):
                return JobResult(JobStatus.DONE)
            if any(codes):
                return self.failed()
            if time.monotonic() > deadline:
                completed = [done(rank) for rank in range(self.count)]
                return JobResult(JobStatus.TIMED_OUT, None, completed.index(min(completed)))
            time.sleep(POLL_S)

    def codes(self) -> list[int | None]:
        """Returns the exit code of the launcher on each machine, None while it runs."""
        return [process.poll() for process in self.processes]

    def failed(self) -> JobResult:
        """Returns the result of a job of which a launcher has failed, with the rank or the machine that caused it.

        Raises:
            StorageError: if a rank could not write or read a file. Such a job has no result.
        """
        host = next((host for host, code in enumerate(self.codes()) if code), 0)
        own = self._log(host).read_text(errors="replace")
        # The others wait for a machine that can't be reached; otherwise they may know the cause.
        deadline = time.monotonic() + (GRACE_S if STARTED in own else 0.0)
        while None in self.codes() and time.monotonic() < deadline:
            time.sleep(POLL_S)
        text = "\n".join(self._log(h).read_text(errors="replace") for h in range(len(self.processes)))
        ended = [(int(match[1]), int(match[2])) for match in _FAILED_RANK.finditer(text)]
        for _, code in ended:
            if fault := fault_of_exit(code):
                raise StorageError(next(iter(storage_paths(self.directory)), self.directory), fault)
        # A rank that was killed could not report; the others lost their peer.
        killed = [(rank, -code) for rank, code in ended if code < 0]
        failures = read_failures(self.directory)
        if failures and not (killed and all(f["kind"] == "lost_peer" for f in failures)):
            return result_of(failures, {rank for rank, _ in ended[:1]}, self._log_tail)
        if killed:
            rank, number = killed[0]
            how = f"was killed by {signal.Signals(number).name}"
            return JobResult(JobStatus.FAILED, f"rank {rank} {how}", rank, log_tail=self._log_tail(rank))
        if ended:
            rank, exited = ended[0]
            reason = f"rank {rank} ended with exit code {exited} and no traceback"
            return JobResult(JobStatus.FAILED, reason, rank, log_tail=self._log_tail(rank), exit_code=exited)
        name = self.machines.hosts[host][0]
        log = self._log(host).read_text(errors="replace")
        lines = [line.strip() for line in log.splitlines() if line.strip() not in ("", STARTED)]
        code = self.processes[host].poll()
        reason = f"host {name}: ended with exit code {code}: {lines[-1][:300] if lines else 'no message'}"
        return JobResult(JobStatus.FAILED, reason, log_tail=tuple(lines[-LOG_LINES:]))

    def _log(self, host: int) -> Path:
        return self.directory / "logs" / f"host-{host}.log"

    def _log_tail(self, rank: int | None) -> tuple[str, ...]:
        path = self.directory / "logs" / f"rank-{rank}.log"
        return tuple(path.read_text(errors="replace").splitlines()[-LOG_LINES:]) if path.exists() else ()
