"""Tells whether a job runs PyTorch without the hook that records its iterations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

UNHOOKED_S = 20.0
"""Time in seconds for which PyTorch is loaded without the hook until that is certain. The hook is ready within the
import of PyTorch.
"""
REASON = (
    "the job runs PyTorch, but wirecost's hook isn't loaded in it: it starts Python with -I, -E or -S, or "
    "replaces PYTHONPATH; keep what PYTHONPATH holds (PYTHONPATH=mine:$PYTHONPATH), or give a regular expression "
    "of the lines that end an iteration (--iteration-regex)"
)
_LIBRARY = b"libtorch_python"


def hook_loaded(directory: Path) -> bool:
    """Returns whether the hook is ready in any process of a job, which then has a folder for stacks."""
    return (directory / "dumps").exists()


def runs_pytorch(pids: Iterable[int], proc: Path = Path("/proc")) -> bool:
    """Returns whether one of these processes or their descendants has loaded PyTorch.

    Args:
        pids: process IDs.
        proc: the kernel's folder of processes.
    """
    waiting, seen = list(pids), set[int]()
    while waiting:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        try:
            if _LIBRARY in (proc / str(pid) / "maps").read_bytes():
                return True
            for path in (proc / str(pid) / "task").glob("*/children"):
                waiting += map(int, path.read_text().split())
        except OSError:
            continue  # it has ended
    return False
