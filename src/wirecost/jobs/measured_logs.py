"""NCCL's logs of a job that is ended when it is measured."""

from __future__ import annotations

import os
from pathlib import Path


class MeasuredLogs:
    """Cuts NCCL's logs off where a job was measured.

    The processes of a measured job are ended one after another. Those that are left report that they lost a peer,
    which says nothing about the network. Leave the context after the processes have ended.

    Args:
        directory: the job's directory, with the logs `logs/nccl-*.log`.
    """

    def __init__(self, directory: Path) -> None:
        self._logs = directory / "logs"
        self._sizes: dict[Path, int] = {}

    def __enter__(self) -> MeasuredLogs:
        return self

    def measured(self) -> None:
        """Notes how long the logs are."""
        self._sizes = {path: path.stat().st_size for path in self._logs.glob("nccl-*.log")}

    def __exit__(self, *_: object) -> None:
        for path, size in self._sizes.items():
            if path.is_file() and path.stat().st_size > size:  # a job may delete or move its logs as it ends
                os.truncate(path, size)
