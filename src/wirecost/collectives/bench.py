"""Runs a benchmark on this machine and gives what it found."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wirecost.collectives.request import Backend, BenchRequest
from wirecost.collectives.result import Network, Row, combine
from wirecost.errors import MissingExtraError, UnsupportedError, WirecostError
from wirecost.fabric.isolate import EXIT_REFUSED, Isolated
from wirecost.fabric.launch import End
from wirecost.fabric.probe import LinkMeasurement

POLL_S = 0.05
EDGE = re.compile(r"Channel \d+[^\n]* via (P2P|SHM|NET/[^/\n]+)")
BUFFERS = 4
"""Send, receive and, while they are checked, what is expected and one rank's data."""
RANK_BYTES = 250 << 20
"""A rank with PyTorch loaded, nothing measured yet (seen: 200 to 240 MiB resident)."""


class BenchError(WirecostError):
    """The benchmark ran and failed."""

    exit_code = 1


def default_backend() -> Backend:
    return Backend.NCCL if Path("/dev/nvidia0").exists() and shutil.which("nvidia-smi") else Backend.GLOO


def run_bench(
    request: BenchRequest,
    *,
    on_start: Callable[[Network], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
    worker: Sequence[str] = (),
) -> tuple[Network, list[Row]]:
    """Measures; calls `on_start` when the network stands and `on_row` for each row as it is found.

    Args:
        worker: another command for a rank, called with the benchmark's directory.

    Raises:
        WirecostError: for what can't be measured here, before or while it is tried.
        BenchError: if a rank fails, or one never comes.
    """
    check_runnable(request)
    with tempfile.TemporaryDirectory(prefix="wirecost-bench-") as name:
        directory = Path(name)
        for folder in ("logs", "failures", "steps"):
            (directory / folder).mkdir()
        (directory / "request.json").write_text(request.model_dump_json())
        reader = _Reader(request, directory, on_start, on_row)
        command = [sys.executable, "-m", "wirecost.collectives.cell", str(directory), *worker]
        emulated = request.fabric.emulate is not None
        with (directory / "logs" / "cell.log").open("wb") as log:
            with Isolated(command, network=emulated, output=log) as cell:
                while (code := cell.poll()) is None:
                    reader.read()
                    time.sleep(POLL_S)
            reader.read()
        _judge(directory, code)
        return reader.network(), reader.rows


def check_runnable(request: BenchRequest) -> None:
    """Refuses what this machine can't run, before anything is started.

    Raises:
        SpecError, MissingExtraError, UnsupportedError
    """
    request.check_sizes()
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("bench", "train")
    if request.backend is Backend.NCCL:
        return
    need = request.ranks * (BUFFERS * request.largest_bytes + RANK_BYTES)
    available = _available_bytes()
    if available is not None and need > available:
        raise UnsupportedError(
            f"{request.ranks} ranks with messages of {request.largest_bytes} B need {need >> 20} MiB, and this "
            f"machine has {available >> 20} MiB free; lower the largest size (-e) or the number of ranks"
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
    """Follows the samples that rank 0 writes."""

    def __init__(
        self,
        request: BenchRequest,
        directory: Path,
        on_start: Callable[[Network], None] | None,
        on_row: Callable[[Row], None] | None,
    ) -> None:
        self.request, self.directory = request, directory
        self.on_start, self.on_row = on_start, on_row
        self.rows: list[Row] = []
        self._position = 0

    def network(self) -> Network:
        fabric = self.request.fabric
        link_path = self.directory / "link.json"
        facts: dict[str, Any] = {}
        if link_path.exists():
            link = LinkMeasurement.model_validate_json(link_path.read_bytes())
            facts = {
                "nominal_rate_bps": link.nominal_rate_bps,
                "measured_rate_bps": link.rate_bps,
                "round_trip_ns": link.round_trip_ns,
                "unshaped_bytes": link.unshaped_bytes,
            }
        if self.request.backend is Backend.NCCL:
            facts["transports"] = reported_transports(self.directory / "logs")
        return Network(name=fabric.name, emulated=fabric.emulate is not None, **facts)

    def read(self) -> None:
        path = self.directory / "samples.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._position)
            while (line := file.readline()).endswith(b"\n"):
                self._position = file.tell()
                sample = json.loads(line)
                network = self.network()
                row = combine(self.request, network, sample["case"], sample["ranks"])
                if not self.rows and self.on_start:
                    self.on_start(network)
                self.rows.append(row)
                if self.on_row:
                    self.on_row(row)


def reported_transports(logs: Path) -> tuple[str, ...]:
    """What NCCL says in its logs (nccl-R.log) that its channels run over."""
    found: set[str] = set()
    for path in logs.glob("nccl-*.log"):
        found |= set(EDGE.findall(path.read_text(errors="replace")))
    return tuple(sorted(found))


def _judge(directory: Path, code: int) -> None:
    path = directory / "ending.json"
    if not path.exists():
        tail = (directory / "logs" / "cell.log").read_text(errors="replace").strip().splitlines()
        last = tail[-1] if tail else "no output"
        if code == EXIT_REFUSED:
            raise UnsupportedError(last)
        raise BenchError(f"the benchmark's process ended with exit code {code} before its ranks did: {last}")
    ending = json.loads(path.read_bytes())
    if ending["end"] == End.DONE:
        return
    if ending["end"] == End.REFUSED:
        raise UnsupportedError(ending["reason"])
    raise BenchError(ending["reason"] or "the benchmark failed for no known reason")
