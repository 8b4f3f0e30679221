"""The record of a run that works on a store: which process it is, so that another one can watch or cancel it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from wirecost.launch.processes import process_start
from wirecost.storage import write_file
from wirecost.study.manifest import read_regular

FOLDER = ".runs"
_MOST_BYTES = 1 << 14


class RunRecord(BaseModel):
    """A run of `wirecost study run`.

    Attributes:
        host: name of the machine that it runs on.
        pid: its process ID there.
        started_ticks: when that process started, in clock ticks since the machine booted.
        begun: Unix time at which the run began, in seconds.
        job: job of a batch system that it runs in, as `slurm 1234`. None outside of one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    host: str
    pid: int
    started_ticks: int
    begun: float
    job: str | None = None

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine."""
        return self.host == socket.gethostname()

    @property
    def slurm_job(self) -> str | None:
        """The number of the job of Slurm that it runs in; None outside of one."""
        system, _, number = (self.job or "").partition(" ")
        return number if system == "slurm" and number.isdigit() else None

    @property
    def lives(self) -> bool | None:
        """Whether its process exists. None if it runs on another machine, where this can't be seen."""
        return process_start(self.pid) == self.started_ticks if self.is_here else None

    def interrupt(self) -> bool:
        """Asks a run on this machine to end. Returns whether its process existed.

        Ctrl-C's signal wouldn't do: a run in the background of a script ignores it.
        """
        if self.lives is not True:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        return True


@contextmanager
def recorded_run(root: Path) -> Iterator[None]:
    """Records this process as a run on a store while the context is active.

    Raises:
        OSError, StorageError: if the record can't be written.
    """
    start = process_start(os.getpid())
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    host = socket.gethostname()
    path = folder / f"{host[:100].replace('/', '-')}-{os.getpid()}.json"
    record = RunRecord(
        host=host, pid=os.getpid(), started_ticks=start or 0, begun=time.time(), job=_job_of(dict(os.environ))
    )
    write_file(path, record.model_dump_json())
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
            folder.rmdir()  # unless another run is recorded there


def runs_of(root: Path) -> list[RunRecord]:
    """Returns the recorded runs on a store that exist, or may exist on other machines. Unreadable records count as
    absent, and so do records of processes that were killed.
    """
    records = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(os.listdir(root / FOLDER)):  # noqa: PTH208
            with suppress(OSError, ValidationError, ValueError):
                path = root / FOLDER / name
                if path.stat().st_size <= _MOST_BYTES:
                    record = RunRecord.model_validate_json(read_regular(path))
                    if record.lives is not False:
                        records.append(record)
    return records


def _job_of(environment: dict[str, str]) -> str | None:
    number = environment.get("SLURM_ARRAY_JOB_ID") or environment.get("SLURM_JOB_ID")
    return f"slurm {number}" if number and number.isdigit() else None
