"""Compares the host's time for a tensor-parallel collective with Megatron-Core's on one GPU.

    PYTHONPATH=src python benchmarks/tensor_parallel.py                        # on a GPU
    PYTHONPATH=src python benchmarks/tensor_parallel.py --device cpu --tiny    # whether it runs at all

The group of two is PyTorch's fake one: collectives move nothing and take no device time, so that what is left of
the difference between one rank of two and no tensor parallelism is the host's. NCCL's own launch is not in it. The
loss means nothing. Other users of the machine slow a host for a while; hence rounds, the sides in turn, and the
least of all beside the median. A side whose device is slower than its host waits for a full launch queue, and its
difference says nothing then (Megatron-Core's without tensor parallelism, whose attention is unfused). The engine
has a data-parallel all-reduce where it has no tensor parallelism, and some collectives beyond each layer's four.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist
from engine_sides import Loop, experiment, megatron_iteration
from engine_timing import Section, workload_of
from torch.testing._internal.distributed.fake_pg import FakeStore

from wirecost.spec import DataParallel, Plan, Precision
from wirecost.train.engine import build_engine

RANKS = 2
PER_LAYER = 4
"""All-reduces: of attention and MLP, forward and backward (Shoeybi et al. 2019, section 3)."""
SIDES = ("engine", "engine, measuring off", "Megatron-Core")
MODEL, MICRO_BATCH, MICRO_BATCHES = "gpt-350m", 2, 2


def host_ms(section: Section, iteration: Callable[[], object], count: int) -> list[float]:
    """Returns the milliseconds to issue each iteration to an idle device, without waiting for it."""
    times_ms = []
    for _ in range(count):
        section.synchronize()
        start = time.perf_counter()
        iteration()
        times_ms.append((time.perf_counter() - start) * 1e3)
    return times_ms


def engine(section: Section, tensor: int, *, measuring: bool) -> Callable[[], object]:
    plan = Plan(
        name="tp", data_parallel=DataParallel("all_reduce"), precision=Precision.BF16, tensor_parallel=tensor
    )
    loop = Loop(section, build_engine(experiment(section, plan, MICRO_BATCHES), section.device))
    to_device, batch = loop.engine.on_device, section.next_batch
    loop.engine.on_device = lambda _: to_device([batch() for _ in range(MICRO_BATCHES)])  # type: ignore[method-assign]
    return loop.measured if measuring else loop.unmeasured


def run_side(arguments: argparse.Namespace) -> None:
    """Prints the host's milliseconds of each iteration."""
    section = Section(arguments)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    if arguments.side == "Megatron-Core":
        run_iteration = megatron_iteration(section, arguments.tensor).run

        def iteration() -> None:
            for last in (*[False] * (MICRO_BATCHES - 1), True):
                run_iteration(last)
    else:
        measuring = arguments.side == "engine"
        iteration = engine(section, arguments.tensor, measuring=measuring)  # type: ignore[assignment]
    for _ in range(arguments.warmup):
        iteration()
    gc.collect()
    gc.freeze()
    print(json.dumps(host_ms(section, iteration, arguments.iterations)), flush=True)
    os._exit(0)  # a fake group has nothing to take down


def measured(arguments: argparse.Namespace, side: str, tensor: int) -> list[float]:
    """Measures one side in a separate process; returns no times, and prints a message, if it fails."""
    command = [
        sys.executable, str(Path(__file__).resolve()), "--side", side, "--tensor", str(tensor),
        "--device", arguments.device, "--iterations", str(arguments.iterations), "--warmup", str(arguments.warmup),
        *(["--tiny"] if arguments.tiny else []),
    ]  # fmt: skip
    environment = {**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
    # Megatron-Core wants one hardware queue, the engine as many as there are.
    environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1" if side == "Megatron-Core" else "32"
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=arguments.seconds
        )
    except subprocess.TimeoutExpired:
        print(f"{side}, {tensor}: no answer after {arguments.seconds:.0f} s", flush=True)
        return []
    if done.returncode:
        print("\n    ".join([f"{side}, {tensor}: failed", *done.stderr.splitlines()[-8:]]), flush=True)
        return []
    return json.loads(done.stdout.splitlines()[-1])


@dataclasses.dataclass
class Times:
    """The host's milliseconds without and with tensor parallelism, all rounds."""

    apart: list[float] = dataclasses.field(default_factory=list)
    split: list[float] = dataclasses.field(default_factory=list)

    def line(self, name: str, collectives: int) -> str:
        parts = [f"{name:<24}"]
        for label, of in (("least", min), ("median", statistics.median)):
            apart, split = of(self.apart), of(self.split)
            each_us = (split - apart) / collectives * 1e3
            parts.append(f"{label} {apart:7.1f} and {split:7.1f} ms, {each_us:5.0f} us a collective")
        return "  ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300, help="for everything; no turn begins later")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a model for checking that everything runs")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--tensor", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.model, arguments.micro_batch, arguments.compile = MODEL, MICRO_BATCH, False
    if arguments.side:
        run_side(arguments)
    sides = list(SIDES)
    if arguments.device == "cpu" or importlib.util.find_spec("megatron") is None:
        print("Megatron-Core is not installed, or has no GPU: not measured", flush=True)
        sides.remove("Megatron-Core")
    times_of_side = {side: Times() for side in sides}
    deadline = time.monotonic() + arguments.seconds
    try:
        for turn in range(arguments.rounds * len(sides)):
            if time.monotonic() >= deadline:
                print(f"no time left after {turn} of {arguments.rounds * len(sides)} turns", flush=True)
                break
            side = sides[turn % len(sides)]
            apart, split = (measured(arguments, side, ranks) for ranks in (1, RANKS))
            if apart and split:
                both = " and ".join(f"{statistics.median(ms):.1f}" for ms in (apart, split))
                print(f"  round {1 + turn // len(sides)}: {side}: {both} ms", flush=True)
                times_of_side[side].apart += apart
                times_of_side[side].split += split
    finally:
        collectives = PER_LAYER * workload_of(MODEL, tiny=arguments.tiny).layers * MICRO_BATCHES
        print(f"{MODEL}, {MICRO_BATCHES} micro-batches of {MICRO_BATCH}, without and as one of {RANKS} ranks:")
        for side, times in times_of_side.items():
            if times.split:
                print(times.line(side, collectives), flush=True)


if __name__ == "__main__":
    main()
