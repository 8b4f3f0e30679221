"""benchmarks/engine.py runs: on a GPU is no place to find out that it doesn't."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "engine.py"


def test_every_section_says_its_numbers() -> None:
    options = ["--device", "cpu", "--tiny", "--no-compile", "--models", "gpt-2-medium", "--loss", "fused"]
    shorter = ["--iterations", "1", "--warmup", "1", "--skip", "megatron,micro-1"]
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *options, *shorter], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    plain, engine, *_ = run.stdout.splitlines()
    assert re.search(r"plain PyTorch +[0-9.]+ ms +[0-9]+ tok/s", plain), run.stdout
    assert "engine, fused loss" in engine, run.stdout
    assert "x plain PyTorch, measuring costs" in engine, run.stdout
