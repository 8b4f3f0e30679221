"""Describes the origin of a result: versions, hardware, commit. Environment variables may hold secrets and are
left out.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from wirecost._version import __version__

PACKAGES = ("torch", "numpy", "pydantic", "pyroute2", "tokenizers")
TELLING = re.compile(r"^(NCCL_|GLOO_|OMP_NUM_THREADS$|CUDA_VISIBLE_DEVICES$)")


def describe_environment() -> dict[str, Any]:
    """Returns the environment as JSON-ready values; an unknown value is None."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "wirecost": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processor": _cpuinfo("model name"),
        "cores": len(os.sched_getaffinity(0)),
        "machine_cores": os.cpu_count(),
        "gpus": _gpus(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "variables": {k: v for k, v in sorted(os.environ.items()) if TELLING.match(k)},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpuinfo(key: str) -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else None


def _gpus(driver: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """Returns the models of the NVIDIA GPUs as the kernel driver names them."""
    models = []
    for path in sorted(driver.glob("*/information")):
        match = re.search(r"^Model:\s*(.+)$", path.read_text(errors="replace"), re.MULTILINE)
        models.append(match[1].strip() if match else "unknown")
    return models


def _commit() -> str | None:
    """Returns the commit of a source checkout, with `+changes` if it was edited; None for an installed package."""
    folder = Path(__file__).parents[1]
    if not (folder.parents[1] / ".git").exists():
        return None
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()
