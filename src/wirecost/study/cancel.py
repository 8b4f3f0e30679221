"""Ends the runs that work on a store."""

from __future__ import annotations

import time
from pathlib import Path

from wirecost.errors import WirecostError
from wirecost.study.run_record import RunRecord
from wirecost.study.slurm import cancel_jobs, live_runs
from wirecost.study.store import Store

END_S = 30.0
"""Time that a run gets to end its ranks and remove its namespaces."""
POLL_S = 0.1


def cancel_runs(root: Path) -> list[str]:
    """Ends the runs on a store, and returns a line for each of them. Finished experiments are kept.

    A run on this machine is ended as by SIGTERM; a job of Slurm is cancelled with `scancel`.

    Raises:
        StoreError: if no study was run here.
        WirecostError: if a run doesn't end, or runs on a machine that can't be reached from here.
    """
    Store(root).study()
    lines = cancel_jobs(root)
    for run in live_runs(root):
        if run.job is not None:
            if not lines:
                raise WirecostError(f"process {run.pid} is part of {run.job}: cancel it with scancel")
        elif run.interrupt():
            _await_end(run)
            lines.append(f"ended process {run.pid}; finished experiments are kept, --resume goes on")
        elif not run.is_here:
            raise WirecostError(f"process {run.pid} runs on {run.host}: cancel it there")
    return lines or [f"nothing runs on {root}"]


def _await_end(run: RunRecord) -> None:
    deadline = time.monotonic() + END_S
    while run.lives:
        if time.monotonic() > deadline:
            raise WirecostError(f"process {run.pid} was interrupted and hasn't ended after {END_S:.0f} s")
        time.sleep(POLL_S)
