"""Runs a collective benchmark on this machine and returns its rows."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from wirecost.collectives.request import Backend, BenchRequest
from wirecost.collectives.result import BenchNetwork, Row, combine
from wirecost.emulation.probe import LinkMeasurement
from wirecost.errors import MissingExtraError, UnsupportedError, WirecostError
from wirecost.launch.failures import storage_paths
from wirecost.launch.isolate import EXIT_REFUSED, Isolated
from wirecost.launch.result import JobStatus
from wirecost.launch.supervision import await_end
from wirecost.ncclog import not_as_asked, read_logs
from wirecost.storage import StorageError, fault_of_exit
from wirecost.temporary import temporary_directory

POLL_S = 0.05
BUFFERS = 4
"""Number of a rank's buffers: send, receive and, during the check, the expected data and one rank's data."""
RANK_BYTES = 250 << 20
"""Memory of a rank that has loaded PyTorch and measured nothing yet (200 to 240 MiB resident were observed)."""


class BenchError(WirecostError):
    """Raised when the benchmark was started and failed."""

    exit_code = 1


def default_backend() -> Backend:
    return Backend.NCCL if Path("/dev/nvidia0").exists() and shutil.which("nvidia-smi") else Backend.GLOO


def run_bench(
    request: BenchRequest,
    *,
    on_start: Callable[[BenchNetwork], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
    worker: Sequence[str] = (),
) -> tuple[BenchNetwork, list[Row]]:
    """Runs a benchmark and returns its network and rows. Calls `on_start` when the network is up and `on_row` with
    each new row.

    Args:
        worker: another command for a rank, called with the benchmark's directory.

    Raises:
        WirecostError: if the request can't be measured on this machine.
        BenchError: if a rank fails or doesn't join.
    """
    check_runnable(request)
    with temporary_directory("wirecost-bench-") as directory:
        reader = _Reader(request, directory, on_start, on_row)
        with _cell([reader], worker) as cell:
            ended = await_end(cell, reader.read, every_s=POLL_S)
        reader.judge(ended)
        return reader.network(), reader.rows


def run_each(
    requests: Sequence[BenchRequest],
    on_done: Callable[[int, BenchNetwork, list[Row]], None],
    on_failed: Callable[[int, WirecostError], None],
    *,
    worker: Sequence[str] = (),
) -> None:
    """Runs several benchmarks in sequence with PyTorch loaded once. Calls `on_done` or `on_failed` with each
    request's index. A failure doesn't affect the other benchmarks.

    Raises:
        StorageError, OSError: if the temporary directory can't be written, which would make all benchmarks fail.
    """
    for emulated in (False, True):
        with ExitStack() as stack:
            waiting: dict[int, _Reader] = {}
            for number, request in enumerate(requests):
                if (request.network.emulate is not None) is not emulated:
                    continue
                try:
                    check_runnable(request)
                except WirecostError as error:
                    on_failed(number, error)
                    continue
                directory = stack.enter_context(temporary_directory("wirecost-bench-"))
                waiting[number] = _Reader(request, directory, None, None)
            while waiting:
                _run_some(waiting, on_done, on_failed, worker)


def _run_some(
    waiting: dict[int, _Reader],
    on_done: Callable[[int, BenchNetwork, list[Row]], None],
    on_failed: Callable[[int, WirecostError], None],
    worker: Sequence[str],
) -> None:
    """Runs the waiting benchmarks in one process and removes those that ended: all, or the first ones if the
    process dies.
    """

    def take(number: int, ended: int | str) -> None:
        reader = waiting.pop(number)
        try:
            reader.read()
            reader.judge(ended)
        except StorageError:
            raise  # the failure is not the network's
        except WirecostError as error:
            on_failed(number, error)
        else:
            on_done(number, reader.network(), reader.rows)

    def take_ended() -> None:
        for number in [n for n, reader in waiting.items() if reader.ended]:
            take(number, 0)

    with _cell(list(waiting.values()), worker) as cell:
        ended = await_end(cell, take_ended, every_s=POLL_S)
        if waiting:
            take(next(iter(waiting)), ended)


@contextmanager
def _cell(readers: Sequence[_Reader], worker: Sequence[str]) -> Iterator[Isolated]:
    directories = [str(r.directory) for r in readers]
    command = [sys.executable, "-m", "wirecost.collectives.cell", *directories]
    emulated = readers[0].request.network.emulate is not None
    with ExitStack() as stack:
        log = stack.enter_context(readers[0].log.open("wb"))
        for reader in readers[1:]:
            reader.log.unlink(missing_ok=True)
            reader.log.hardlink_to(readers[0].log)
        yield stack.enter_context(
            Isolated([*command, *(("--", *worker) if worker else ())], network=emulated, output=log)
        )


def check_runnable(request: BenchRequest) -> None:
    """Checks that this machine can run a benchmark, before anything is started.

    Raises:
        SpecError, MissingExtraError, UnsupportedError
    """
    request.check_sizes()
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("bench", "train")
    if request.backend is Backend.MPI and importlib.util.find_spec("mpi4py") is None:
        raise MissingExtraError("backend mpi", "mpi")
    if request.backend is Backend.NCCL:
        return
    need = request.ranks_here * (BUFFERS * request.largest_bytes + RANK_BYTES)
    available = _available_bytes()
    if available is not None and need > available:
        raise UnsupportedError(
            f"{request.ranks_here} ranks with messages of {request.largest_bytes} B need {need >> 20} MiB, and "
            f"this machine has {available >> 20} MiB free; lower the largest size (-e) or the number of ranks"
        )


def _available_bytes() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None


class _Reader:
    """Follows the samples that rank 0 writes into a benchmark's directory."""

    def __init__(
        self,
        request: BenchRequest,
        directory: Path,
        on_start: Callable[[BenchNetwork], None] | None,
        on_row: Callable[[Row], None] | None,
    ) -> None:
        self.request, self.directory = request, directory
        self.on_start, self.on_row = on_start, on_row
        self.rows: list[Row] = []
        self._position = 0
        for folder in ("logs", "failures", "steps"):
            (directory / folder).mkdir()
        (directory / "request.json").write_text(request.model_dump_json())

    @property
    def log(self) -> Path:
        return self.directory / "logs" / "cell.log"

    @property
    def ended(self) -> bool:
        return (self.directory / "ending.json").exists()

    def network(self) -> BenchNetwork:
        """Returns what is known of the network so far."""
        network = self._links()
        if self.request.backend is Backend.NCCL:
            network = network.model_copy(update=reported(self.request, self.directory / "logs"))
        return network

    def _links(self) -> BenchNetwork:
        network = self.request.network
        measured = BenchNetwork(name=network.name, emulated=network.emulate is not None)
        link_path = self.directory / "link.json"
        if not link_path.exists():
            return measured
        link = LinkMeasurement.model_validate_json(link_path.read_bytes())
        return measured.model_copy(
            update={
                "nominal_rate_bps": link.nominal_rate_bps,
                "measured_rate_bps": link.rate_bps,
                "round_trip_ns": link.round_trip_ns,
                "unshaped_bytes": link.unshaped_bytes,
            }
        )

    def read(self) -> None:
        path = self.directory / "samples.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._position)
            while (line := file.readline()).endswith(b"\n"):
                self._position = file.tell()
                sample = json.loads(line)
                if not self.rows and self.on_start:
                    self.on_start(self.network())
                row = combine(self.request, self._links(), sample["case"], sample["ranks"])
                self.rows.append(row)
                if self.on_row:
                    self.on_row(row)

    def judge(self, ended: int | str) -> None:
        """Raises UnsupportedError, StorageError or BenchError unless all ranks ended well.

        Args:
            ended: exit code of the benchmark's process, or the reason why it was stopped.
        """
        if not self.ended:
            if isinstance(ended, str):
                raise BenchError(f"the benchmark {ended}")
            if fault := fault_of_exit(ended):
                raise StorageError(next(iter(storage_paths(self.directory)), self.directory), fault)
            tail = self.log.read_text(errors="replace").strip().splitlines()
            last = tail[-1] if tail else "no output"
            if ended == EXIT_REFUSED:
                raise UnsupportedError(last)
            raise BenchError(f"the benchmark's process ended with exit code {ended} before its ranks did: {last}")
        ending = json.loads((self.directory / "ending.json").read_bytes())
        if ending["status"] == JobStatus.DONE:
            return
        if ending["status"] == JobStatus.REFUSED:
            raise UnsupportedError(ending["reason"])
        raise BenchError(ending["reason"] or "the benchmark failed for an unknown reason")


def reported(request: BenchRequest, logs: Path) -> dict[str, Any]:
    """Returns `BenchNetwork`'s fields about the transport, from the NCCL logs (nccl-R.log) in a directory."""
    paths = sorted(logs.glob("nccl-*.log"))
    if not paths:
        return {}
    verdict = read_logs(paths)
    words = sorted({w for c in verdict.communicators for p in c.pairs for w in p.networks})
    requested = "tcp" if request.network.emulate is not None else request.network.transport
    mismatch = not_as_asked(verdict, requested) if requested else None
    return {
        "transport": str(verdict.verdict),
        "reported": tuple(words),
        "doubt": mismatch.message if mismatch else verdict.reason,
    }
