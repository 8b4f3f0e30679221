"""Measures a plan by the user's command on the nodes of a Slurm allocation.

Every rank is a task of a step that runs `wirecost run` around the command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from wirecost.launch.result import JobStatus
from wirecost.launch.step import StepRanks
from wirecost.spec import Network
from wirecost.study.allocation import Allocation
from wirecost.study.result import Result
from wirecost.study.store import Status, Store

TIMEOUT_S = 900.0
"""Longest time of a plan in seconds."""


def run_step(
    command: Sequence[str], place: Allocation, network: Network, out: Path, *, iterations: int, warmup: int
) -> tuple[Result | None, str]:
    """Runs a command as the ranks of a step, or takes the result that `out` has already.

    Args:
        command: the training command of each rank.
        network: the network between the nodes.
        out: folder of the results, which all nodes see.
        iterations, warmup: numbers of measured iterations, and of those before them.

    Returns:
        The result, or None and the reason.
    """
    folder = out.absolute()
    if (folder / "run").exists() and (result := _result(folder / "run")) is not None:
        return result, ""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    options = ["--networks", "native", "--steps", str(iterations), "--warmup", str(warmup), "--profile", "0"]
    options += ["--out", str(folder / "run")]
    options += ["--resume", "--retry-failed"] if (folder / "run").exists() else []
    words = [sys.executable, "-m", "wirecost", "run", *options, "--", *command]
    count = place.hosts * place.ranks_per_host
    with StepRanks(words, folder, count, per_host=place.ranks_per_host, network=network) as ranks:
        ended = ranks.watch(TIMEOUT_S, lambda _: 0)
    result = _result(folder / "run") if (folder / "run").exists() else None
    if result is not None:
        return result, ""
    if ended.status is JobStatus.TIMED_OUT:
        return None, f"took longer than {TIMEOUT_S:g} s"
    return None, f"{_last_line(folder) or ended.reason or 'no result'}; {folder / 'logs'} has the output"


def _last_line(folder: Path) -> str:
    """Returns what the first rank that ended with a message said last, of at most 200 characters."""
    for path in sorted((folder / "run").rglob("rank-*.log")) + sorted((folder / "logs").glob("rank-*.log")):
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
        if lines and "Force Terminated" not in lines[-1]:
            return lines[-1][:200]
    return ""


def _result(store: Path) -> Result | None:
    """Returns the finished result of a store. None if it has none."""
    results = Store(store).contents().results
    return next((r for r in results if r.outcome.status is Status.DONE and r.breakdown is not None), None)
