"""The processes of a study's experiments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from wirecost.launch.isolate import Isolated
from wirecost.launch.preloaded import IsolatedFork, Preloaded

CELL = "wirecost.study.cell"


class Cells:
    """Starts the process of an experiment. It is forked from one that has loaded PyTorch; if ranks run another
    command, it is a new process.
    """

    def __init__(self, out: Path, worker: Sequence[str]) -> None:
        self.out = out
        self.worker = worker
        self._preloaded: Preloaded | None = None

    def start(
        self, directory: Path, *, network: bool, output: IO[bytes], forked: bool = True
    ) -> Isolated | IsolatedFork:
        """Starts the process of the experiment in `directory`. One that runs a command needn't load PyTorch and
        isn't `forked`.
        """
        if self.worker or not forked:
            command = [sys.executable, "-m", CELL, str(directory), *self.worker]
            return Isolated(command, network=network, output=output)
        if self._preloaded is not None and not self._preloaded.runs():
            self._preloaded.close()  # killed, perhaps for lack of memory: the next experiment gets a new one
            self._preloaded = None
        if self._preloaded is None:
            # Not started earlier, because it would disturb the benchmarks of the networks.
            self._preloaded = Preloaded(CELL, str(self.out))
        return self._preloaded.run([str(directory)], network=network, output=output)

    @property
    def server(self) -> int | None:
        """Returns the process ID of the process that has loaded PyTorch; None if there is none."""
        return None if self._preloaded is None else self._preloaded.pid

    def __enter__(self) -> Cells:
        return self

    def __exit__(self, *_: object) -> None:
        if self._preloaded is not None:
            self._preloaded.close()
