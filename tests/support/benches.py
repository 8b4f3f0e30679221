"""Requests of `wirecost bench`, and ranks that do something else first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from wirecost.collectives.options import BenchOptions, request_from
from wirecost.collectives.request import BenchRequest

# A rank's command that does something else first.
FAULTY = """\
import os, sys, time
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
{body}
from wirecost.collectives.worker import main
sys.exit(main())
"""


def request(**changes: Any) -> BenchRequest:
    options: dict[str, Any] = {
        "collectives": ["all_reduce"],
        "smallest": "64K",
        "largest": None,
        "factor": None,
        "step": None,
        "hosts": 1,
        "ranks_per_host": None,
        "network": None,
        "groups": "1",
        "backend": "gloo",
        "dtype": "float",
        "redop": "sum",
        "iterations": 1,
        "warmup": 1,
        "check": True,
        "place": "both",
        "timeout": "60 s",
        "seed": 1,
    }
    return request_from(BenchOptions(**(options | changes)))


def faulty(folder: Path, body: str) -> list[str]:
    path = folder / "faulty.py"
    path.write_text(FAULTY.format(body=body))
    return [sys.executable, str(path)]


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wirecost", "bench", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
