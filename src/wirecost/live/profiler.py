"""A handler for `torch.profiler` that keeps each window's trace and prints its breakdown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def trace_handler(
    folder: str | Path, *, print_line: Callable[[str], object] | None = None
) -> Callable[[Any], None]:
    """Returns an `on_trace_ready` handler that writes `rankR_STEP.json.gz` to a folder and prints one line on
    rank 0.

    The line is this rank's: its iteration under the profiler, exposed and hidden communication. `wirecost trace`
    reads the traces of all ranks, and tells wait and transfer apart.

    Args:
        folder: is created if need be.
        print_line: replaces printing to standard error.
    """
    directory = Path(folder)

    def ready(profiler: Any) -> None:
        rank = _rank()
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"rank{rank}_{profiler.step_num}.json.gz"
        profiler.export_chrome_trace(str(path))
        if rank == 0:
            (print_line or _print_line)(f"wirecost: {path}: {_breakdown(path)}")

    return ready


def _rank() -> int:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return int(os.environ.get("RANK", "0"))


def _breakdown(path: Path) -> str:
    """Returns what a rank's trace says in one line."""
    from wirecost.trace import TraceError, read

    try:
        breakdown = read(path, jobs=1).breakdown
    except TraceError as error:
        return str(error)
    time = breakdown.iteration_ns()
    exposed, hidden = (breakdown.share(part) for part in ("exposed_comm_ns", "overlapped_ns"))
    if time is None or exposed is None or hidden is None:
        return "no iteration in the trace"
    return (
        f"{time.median * 1e-6:.4g} ms under the profiler, {exposed.text(0)} exposed communication, "
        f"{hidden.text(0)} hidden"
    )


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
