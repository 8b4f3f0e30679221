"""benchmarks/engine.py and tensor_parallel.py run: on a GPU is no place to find out that they don't."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def output(script: str, *options: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), "--device", "cpu", "--tiny", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_section_says_its_numbers() -> None:
    options = ["--no-compile", "--models", "gpt-2-medium", "--loss", "fused"]
    found = output("engine.py", *options, "--iterations", "1", "--warmup", "1", "--skip", "megatron,micro-1")
    plain, engine, *_ = found.splitlines()
    assert re.search(r"plain PyTorch +[0-9.]+ ms +[0-9]+ tok/s", plain), found
    assert "engine, fused loss" in engine, found
    assert "x plain PyTorch, measuring costs" in engine, found


def test_the_host_is_timed_with_and_without_tensor_parallelism() -> None:
    found = output("tensor_parallel.py", "--iterations", "1", "--warmup", "1", "--rounds", "1")
    *_, measuring, off = found.splitlines()
    for line, name in ((measuring, "engine "), (off, "engine, measuring off ")):
        assert re.match(name + r" +least +[0-9.]+ and +[0-9.]+ ms, +-?[0-9]+ us a collective", line), found


def test_the_host_is_timed_with_each_kind_of_communication() -> None:
    found = output("host_costs.py")
    assert found.startswith("Host of processors"), found
    for key in (
        "host_collective_s",
        "host_sequence_collective_s",
        "host_shard_s",
        "host_transfer_s",
        "host_gated",
    ):
        assert re.search(rf"{key} +[0-9]+ +-?[0-9]+ \(-?[0-9]+ to -?[0-9]+\) +not used", found), found


def test_experts_are_timed_with_both_routings() -> None:
    options = ["--ranks", "2", "--experts", "4", "--top-k", "2", "--iterations", "1", "--warmup", "0"]
    title, _, *rows = output("experts.py", *options).splitlines()
    assert title.startswith("2 x CPU")
    assert [row.split()[:2] for row in rows] == [
        [routing, kernel] for routing in ("balanced", "learned") for kernel in ("grouped", "single")
    ]
