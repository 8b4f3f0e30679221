"""Processes of this machine that a test started."""

from __future__ import annotations

import os
from pathlib import Path

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
_MARK = f"PYTEST_XDIST_WORKER={_WORKER}\0".encode() if _WORKER else b""


def of_this_worker(process: Path) -> bool:
    """Returns whether a process may be one that tests of this parallel worker started.

    Args:
        process: its folder, /proc/PID.

    Raises:
        OSError: if it has ended.
    """
    return _MARK in (process / "environ").read_bytes()
