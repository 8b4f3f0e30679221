"""One experiment, run in a process of its own: `python -m wirecost.study.cell DIRECTORY`.

Builds the network, measures it, starts the ranks, watches them, and writes `outcome.json`. Runs isolated
(see `wirecost.fabric.isolate`), so that whatever kills it leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from wirecost.errors import WirecostError
from wirecost.fabric.hosts import INTERFACE, EmulatedHosts
from wirecost.fabric.probe import LinkMeasurement, measure_links
from wirecost.spec import Device, Experiment
from wirecost.study.store import Outcome, Status
from wirecost.units import format_rate_bps

WORKER = (sys.executable, "-m", "wirecost.train.worker")
MASTER_PORT = 29500
RATE_TOLERANCE = 0.05
"""A link that gives less than its nominal rate by more than this is not the network that was asked for."""
MEASUREMENTS = 3
GRACE_S = 2.0
"""How long the other ranks may take to tell why they failed too: the first to die is not always the cause."""
LOG_LINES = 20
BUSY_SAMPLE_S = 0.3
POLL_S = 0.05


def run_cell(directory: Path, worker: Sequence[str] = WORKER) -> Outcome:
    """Runs the experiment in `directory` to its end."""
    experiment = Experiment.model_validate_json((directory / "experiment.json").read_bytes())
    (directory / "machine.json").write_text(json.dumps({"busy_fraction_before": _busy_fraction()}))
    with ExitStack() as stack:
        hosts = None
        if experiment.fabric.emulate is not None:
            try:
                hosts = stack.enter_context(EmulatedHosts(experiment.hosts, experiment.fabric.emulate))
            except WirecostError as error:
                return Outcome(status=Status.SKIPPED, reason=str(error))
            if experiment.hosts > 1:
                link = _measure(hosts)
                (directory / "link.json").write_text(link.model_dump_json(indent=1))
                if reason := _too_slow(link):
                    return Outcome(status=Status.SKIPPED, reason=reason)
        ranks = stack.enter_context(_Ranks(experiment, directory, hosts, worker))
        return ranks.watch()


def _busy_fraction() -> float | None:
    """How much of all cores others use, before anything of ours runs; None where the kernel doesn't tell."""

    def read() -> tuple[int, int]:
        # user nice system idle iowait irq softirq steal (proc_stat(5))
        times = [int(t) for t in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(times), times[3] + times[4]

    try:
        total, idle = read()
        time.sleep(BUSY_SAMPLE_S)
        later_total, later_idle = read()
    except (OSError, ValueError, IndexError):
        return None
    return 1 - (later_idle - idle) / (later_total - total) if later_total > total else None


def _measure(hosts: EmulatedHosts) -> LinkMeasurement:
    """The best of a few measurements: a busy machine makes a link look slower, nothing makes it look faster."""
    best = measure_links(hosts)
    for _ in range(MEASUREMENTS - 1):
        if _too_slow(best) is None:
            break
        best = max(best, measure_links(hosts), key=lambda m: m.rate_bps)
    return best


def _too_slow(link: LinkMeasurement) -> str | None:
    nominal = link.nominal_rate_bps
    if nominal is None or link.rate_bps >= nominal * (1 - RATE_TOLERANCE):
        return None
    return (
        f"this machine reaches {format_rate_bps(link.rate_bps, 3)} between {len(link.rates_bps)} emulated hosts, "
        f"not {format_rate_bps(nominal, 3)}; use a slower fabric, fewer hosts, or a less busy machine"
    )


class _Ranks:
    """The rank processes of an experiment."""

    def __init__(
        self, experiment: Experiment, directory: Path, hosts: EmulatedHosts | None, worker: Sequence[str]
    ) -> None:
        self.experiment = experiment
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []
        self.deadline = time.monotonic() + experiment.timeout
        cores = sorted(os.sched_getaffinity(0))
        per_rank = max(1, len(cores) // experiment.ranks)
        address = hosts.address(0) if hosts else "127.0.0.1"
        port = MASTER_PORT if hosts else _free_port()
        for rank in range(experiment.ranks):
            host = rank // experiment.ranks_per_host
            environment = {
                **os.environ,
                **_network_environment(experiment, host, emulated=hosts is not None),
                "RANK": str(rank),
                "WORLD_SIZE": str(experiment.ranks),
                "LOCAL_RANK": str(rank % experiment.ranks_per_host),
                "LOCAL_WORLD_SIZE": str(experiment.ranks_per_host),
                "MASTER_ADDR": address,
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": str(per_rank),
                "PYTHONUNBUFFERED": "1",
            }
            if experiment.device is Device.CUDA:
                # What NCCL says there labels the result with the transport that was really used.
                environment |= {
                    "NCCL_DEBUG": "INFO",
                    "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P",
                    "NCCL_DEBUG_FILE": str(directory / "logs" / f"nccl-{rank}.log"),
                }
            with (directory / "logs" / f"rank-{rank}.log").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [*worker, str(directory)],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        preexec_fn=(lambda h=host: hosts.enter(h)) if hosts else None,  # noqa: PLW1509
                    )
                )

    def __enter__(self) -> _Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def watch(self) -> Outcome:
        """Waits for the end: of all ranks, or of the first that fails, or of the time allowed."""
        while True:
            codes = [p.poll() for p in self.processes]
            if any(codes):
                return self._failed()
            if all(code == 0 for code in codes):
                return Outcome(status=Status.DONE)
            if time.monotonic() > self.deadline:
                return self._timed_out()
            time.sleep(POLL_S)

    def _failed(self) -> Outcome:
        died_first = {r for r, p in enumerate(self.processes) if p.returncode}
        end = time.monotonic() + GRACE_S
        while time.monotonic() < end and any(p.poll() is None for p in self.processes):
            time.sleep(POLL_S)
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
            hint = "; the kernel kills so when memory runs out" if number == signal.SIGKILL else ""
            reason = f"rank {rank} was killed by {signal.Signals(number).name}{hint}"
            return Outcome(status=Status.FAILED, reason=reason, rank=rank, log_tail=self._log_tail(rank))
        if not causes and not told:
            rank = min(died_first)
            reason = f"rank {rank} ended with exit code {self.processes[rank].returncode} and no traceback"
            return Outcome(status=Status.FAILED, reason=reason, rank=rank, log_tail=self._log_tail(rank))
        first = (causes or told)[0]
        return Outcome(
            status=Status.OOM if first["kind"] == "oom" else Status.FAILED,
            reason=f"rank {first['rank']}: {first['reason']}",
            rank=first["rank"],
            traceback=first["traceback"],
            log_tail=self._log_tail(first["rank"]),
        )

    def _timed_out(self) -> Outcome:
        done = [_count_lines(self.directory / "samples" / f"rank-{r}.jsonl") for r in range(len(self.processes))]
        slowest = done.index(min(done))
        # Every rank writes where it is into its log.
        for process in self.processes:
            process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        reason = (
            f"not finished after {self.experiment.timeout:.0f} s; rank {slowest} had completed {done[slowest]} of "
            f"{self.experiment.warmup + self.experiment.iterations} iterations; raise 'timeout' if it only is slow"
        )
        return Outcome(status=Status.FAILED, reason=reason, rank=slowest, log_tail=self._log_tail(slowest))

    def _log_tail(self, rank: int) -> tuple[str, ...]:
        text = (self.directory / "logs" / f"rank-{rank}.log").read_text(errors="replace")
        return tuple(text.splitlines()[-LOG_LINES:])


def _network_environment(experiment: Experiment, host: int, *, emulated: bool) -> dict[str, str]:
    """What makes NCCL and gloo use the experiment's network."""
    emulation, native = experiment.fabric.emulate, experiment.fabric.native
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


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main(argv: Sequence[str]) -> int:
    directory = Path(argv[0])
    outcome = run_cell(directory, argv[1:] or WORKER)
    partial = directory / ".outcome.json"
    partial.write_text(outcome.model_dump_json())
    partial.rename(directory / "outcome.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
