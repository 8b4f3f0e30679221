"""Starts the processes of a distributed job on emulated or real hosts of this machine, and watches them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from wirecost.breakdown.memory import MemoryKind, OutOfMemory
from wirecost.emulation.hosts import INTERFACE, EmulatedHosts
from wirecost.launch.forked import Forked
from wirecost.launch.memory import largest_child_bytes
from wirecost.launch.processes import END_S, die_with_parent, mapped_shared_memory, remove_shared_memory
from wirecost.launch.stalls import ElapsedTime, StallWatch
from wirecost.launch.waiting import slowest_rank
from wirecost.spec.network import Network
from wirecost.storage import StorageError, fault_of_exit

MASTER_PORT = 29500
PORTS_TRIED = 100
EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
GRACE_S = 2.0
"""How long the other ranks may take to tell why they failed too: the first to die is not always the cause."""
LOG_LINES = 20
POLL_S = 0.05
DUMP_S = 0.5
"""Time that ranks have to write where they are."""
DUMP_BYTES = 1 << 20


class End(StrEnum):
    DONE = "done"
    FAILED = "failed"
    OOM = "oom"
    REFUSED = "refused"  # a rank found that what was asked for can't be
    LATE = "late"


@dataclass(frozen=True)
class Ending:
    """How the ranks ended; `rank` is the one that caused it. `memory` is there when memory ran out."""

    end: End
    reason: str | None = None
    rank: int | None = None
    traceback: str | None = None
    log_tail: tuple[str, ...] = ()
    memory: OutOfMemory | None = None


class Ranks:
    """`count` processes of one job, `per_host` on each host, with torchrun's environment variables.

    Args:
        command: what each rank runs: a program, or a function that a forked child calls for its exit code.
        directory: holds `logs/` (made by the caller) for rank-R.log, and `failures/` where ranks report
            (`wirecost.launch.rank.report_failure`).
        hosts: emulated hosts; None puts all ranks on this one.
        most_threads: of each rank; None lets the ranks share out all cores.
        nccl_log: have NCCL write what it does to logs/nccl-R.log.

    Leaving the context kills whatever still runs.
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
        # One that hangs in the kernel can't be waited for; whoever ends this process deals with it.
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
    ) -> Ending:
        """Waits for the end: of all ranks, or of the first that fails or stalls, or of the time allowed.

        Args:
            done: how many steps a rank has completed.
            renew: the time allowed is for each step instead of for everything.
            disk_may_be_slow: a rank may wait for a disk for longer than a stall is allowed to take.

        `LATE` names the rank that the others wait for as `rank`, None if that can't be told; the caller says what
        that means.

        Raises:
            StorageError: if a rank could not write or read a file: that is no end of the job's own.
        """
        elapsed = ElapsedTime()
        stalls = StallWatch(disk_may_be_slow=disk_may_be_slow)
        limit_s = timeout_s
        before: list[int] = []
        while True:
            codes = [p.poll() for p in self.processes]
            if any(codes):
                return self._failed()
            if all(code == 0 for code in codes):
                return Ending(End.DONE)
            elapsed.step()
            if renew and (now := [done(r) for r in range(len(self.processes))]) != before:
                before, limit_s = now, elapsed.seconds + timeout_s
            if stall := stalls.look(lambda: [p.pid for p in self.processes if p.poll() is None]):
                rank = [p.pid for p in self.processes].index(stall.pid)
                reason = f"rank {rank} made no progress: process {stall.pid} {stall.reason}"
                return Ending(End.FAILED, reason, rank, log_tail=self._log_tail(rank))
            if elapsed.seconds > limit_s:
                return self._late([done(r) for r in range(len(self.processes))])
            time.sleep(POLL_S)

    def _failed(self) -> Ending:
        died_first = {r for r, p in enumerate(self.processes) if p.returncode}
        end = time.monotonic() + GRACE_S
        while time.monotonic() < end and any(p.poll() is None for p in self.processes):
            time.sleep(POLL_S)
        for process in self.processes:
            if fault := fault_of_exit(process.returncode):
                raise StorageError(self._fault_path(), fault)
        told = [
            json.loads(path.read_bytes()) for path in sorted((self.directory / "failures").glob("rank-*.json"))
        ]
        killed = [r for r in died_first if (self.processes[r].returncode or 0) < 0]
        # A rank that lost its peer tells nothing of why; one that was killed can't tell.
        causes = [f for f in told if f["kind"] != "lost_peer"]
        causes.sort(key=lambda f: (f["rank"] not in died_first, f["rank"]))
        if killed and not any(f["rank"] in died_first for f in causes):
            rank = min(killed)
            number = -(self.processes[rank].returncode or 0)
            end, hint = self._why_killed(number)
            reason = f"rank {rank} was killed by {signal.Signals(number).name}{hint}"
            memory = None
            if end is End.OOM:
                # The kernel lets nothing be asked of a rank that it killed but how large it became.
                peak = largest_child_bytes()
                memory = OutOfMemory(kind=MemoryKind.RESIDENT_SET if peak else None, peak_bytes=peak)
                reason = f"{reason}; {memory.words}"
            return Ending(end, reason, rank, log_tail=self._log_tail(rank), memory=memory)
        if not causes and not told:
            rank = min(died_first)
            reason = f"rank {rank} ended with exit code {self.processes[rank].returncode} and no traceback"
            return Ending(End.FAILED, reason, rank, log_tail=self._log_tail(rank))
        first = (causes or told)[0]
        end_kind = {"oom": End.OOM, "refused": End.REFUSED}.get(first["kind"], End.FAILED)
        reason = first["reason"] if end_kind is End.REFUSED else f"rank {first['rank']}: {first['reason']}"
        memory = None
        if end_kind is End.OOM:
            memory = _most([OutOfMemory.model_validate(f.get("memory", {})) for f in told if f["kind"] == "oom"])
            reason = f"{reason}; {memory.words}"
        return Ending(end_kind, reason, first["rank"], first["traceback"], self._log_tail(first["rank"]), memory)

    def _fault_path(self) -> object:
        """The file that a rank could not write or read; the directory where no report of that could be written."""
        return next(iter(storage_paths(self.directory)), self.directory)

    def _why_killed(self, number: int) -> tuple[End, str]:
        if number != signal.SIGKILL:
            return End.FAILED, ""
        before, now = self.oom_kills_before, oom_kills()
        if before is None or now is None:
            return End.FAILED, "; the kernel kills so when memory runs out"
        if now > before:
            return End.OOM, ": memory ran out, and the kernel killed a process for it during the run"
        return End.FAILED, "; not for want of memory: the kernel killed no process for that during the run"

    def _late(self, done: Sequence[int]) -> Ending:
        logs = [self.directory / "logs" / f"rank-{rank}.log" for rank in range(len(self.processes))]
        sizes = [log.stat().st_size for log in logs]
        # Every rank writes where it is into its log.
        for process in self.processes:
            process.send_signal(signal.SIGUSR1)
        time.sleep(DUMP_S)
        dumps = [read_from(log, size) for log, size in zip(logs, sizes, strict=True)]
        slowest = slowest_rank(done, dumps)
        return Ending(End.LATE, None, slowest, log_tail=() if slowest is None else self._log_tail(slowest))

    def _log_tail(self, rank: int) -> tuple[str, ...]:
        text = (self.directory / "logs" / f"rank-{rank}.log").read_text(errors="replace")
        return tuple(text.splitlines()[-LOG_LINES:])


def read_from(path: Path, position: int) -> str:
    """Returns what a file holds from a position in bytes on, at most the last `DUMP_BYTES`."""
    with path.open("rb") as file:
        file.seek(max(position, path.stat().st_size - DUMP_BYTES))
        return file.read(DUMP_BYTES).decode(errors="replace")


def _enter_bound(parent: int, enter: Callable[[], object] | None) -> None:
    """Binds a child's life to its parent's, and then makes it part of a host."""
    die_with_parent(parent)
    if enter:
        enter()


def storage_paths(directory: Path) -> list[str]:
    """Files that the ranks of a job could not write or read, by their reports as far as these could be written."""
    found = []
    for path in sorted((directory / "failures").glob("rank-*.json")):
        with contextlib.suppress(OSError, ValueError):
            failure = json.loads(path.read_bytes())
            if isinstance(failure, dict) and failure.get("kind") == "storage" and failure.get("path"):
                found.append(str(failure["path"]))
    return found


def _most(told: Sequence[OutOfMemory]) -> OutOfMemory:
    """The largest of what the ranks that ran out of memory say, those of the first one's kind."""
    kind = next((m.kind for m in told if m.kind is not None), None)
    return OutOfMemory(
        kind=kind,
        peak_bytes=max((m.peak_bytes for m in told if m.kind is kind and m.peak_bytes is not None), default=None),
        asked_bytes=max((m.asked_bytes for m in told if m.asked_bytes is not None), default=None),
    )


def nccl_log_environment(path: Path) -> dict[str, str]:
    """What NCCL says at `path` labels the result with the transport that was really used."""
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P", "NCCL_DEBUG_FILE": str(path)}


def local_sockets(network: Network) -> dict[str, str]:
    """Returns environment variables that keep the sockets of this machine's ranks from other machines."""
    return {"GLOO_SOCKET_IFNAME": "lo"} | ({"NCCL_SOCKET_IFNAME": "lo"} if network.inside else {})


def network_environment(network: Network, host: int, *, emulated: bool) -> dict[str, str]:
    """What makes NCCL and gloo use a network."""
    emulation, native = network.emulate, network.native
    if not emulated or emulation is None:
        chosen = dict(native.environment) if native else {}
        interface = native.interface if native else None
    else:
        chosen = {
            # Ranks with another host id are on another host to NCCL: no peer access, no shared memory.
            "NCCL_HOSTID": f"wirecost-host-{host}",
            "NCCL_NET": "Socket",
            "NCCL_SOCKET_NTHREADS": str(emulation.socket_threads),
            "NCCL_NSOCKS_PERTHREAD": str(emulation.sockets_per_thread),
        }
        interface = INTERFACE
    if interface:
        chosen |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return chosen


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """How many processes the kernel has killed for want of memory since it started, within a control group's limit
    or the machine's; None where it doesn't tell."""
    try:
        found = re.search(r"^oom_kill (\d+)$", vmstat.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def free_port(ephemeral: Path = EPHEMERAL_PORTS) -> int:
    """A port for the ranks to meet on, seconds from now: none of those that the kernel hands out unasked, which
    another process's connection could have by then.

    Raises:
        OSError: where all that were tried are in use.
    """
    try:
        first, last = map(int, ephemeral.read_text().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    ports: Sequence[int] = [port for port in range(10_000, 65_536) if not first <= port <= last]
    if len(ports) < PORTS_TRIED:
        ports = range(10_000, 65_536)
    for port in random.SystemRandom().sample(ports, PORTS_TRIED):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise OSError(
        f"{PORTS_TRIED} ports from 10000 on are all in use: none is left for the ranks to meet on; end what "
        "listens on them (ss -ltnp shows it)"
    )
