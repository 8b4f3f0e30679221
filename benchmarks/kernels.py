"""What the GPU computes in an iteration of one of two ranks, by kind of kernel, on one GPU.

    PYTHONPATH=src python benchmarks/kernels.py
    PYTHONPATH=src python benchmarks/kernels.py --only gpt-1.3b/ddp gpt-1.3b/tp2-compiled --top 12
    PYTHONPATH=src python benchmarks/kernels.py --device cpu --tiny     # does it run?

The rows are those of graphs.py. Nothing is sent: a collective over a group of this rank alone stands for each one,
and the parts of other ranks are copies of this rank's. What is left is the computation, which can be compared with
that of another plan. Each row is a process. It prints the time of a replayed iteration, and the sum of the kernels
by kind of one that the host launches. Copies within the GPU stand for what is gathered, so they are apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from graphs import MICRO_BATCH, QUEUES, ROWS, experiment_of, full, tiny
from torch.testing._internal.distributed.fake_pg import FakeStore

from wirecost.train.communicator import Communicator
from wirecost.train.graphs import IterationGraphs, use_side_stream
from wirecost.train.hosttimes.one_rank import OneRank
from wirecost.train.hosttimes.timed import TimedEngine

RANKS = 2
KINDS = {
    "matrix products": r"gemm|nvjet|cutlass|xmma|splitK|mm_kernel|addmm|::mm",
    "attention": r"flash|cudnn|fmha|sdpa|attention",
    "optimizer": r"multi_tensor|[aA]dam|foreach",
    "copies, gathered": r"Memcpy DtoD",
    "NCCL": r"nccl",
}
"""Patterns of kernels' names. The first that matches counts."""
OTHER = "elementwise and others"


class Copied(OneRank):
    """One rank, whose own part stands for those of the other ranks."""

    def all_gather_into_tensor(
        self, output: torch.Tensor, shard: torch.Tensor, _: object, async_op: bool = False
    ) -> Any:
        output.view(RANKS, -1)[1:].copy_(shard.view(1, -1))
        return super().all_gather_into_tensor(output, shard, _, async_op)


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), OTHER)


def replayed_ms(timed: TimedEngine, iterations: int) -> float:
    """Returns the median time of a replayed iteration."""
    graphs = IterationGraphs(timed.engine)
    graphs.capture(timed.micro_batches)
    times_ms = []
    for _ in range(iterations):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        timed.engine.recorder.begin()
        start.record()
        graphs.replay(timed.micro_batches)
        end.record()
        timed.read(timed.engine.recorder.finish())
        end.synchronize()
        times_ms.append(start.elapsed_time(end))
    return statistics.median(times_ms)


def kernels_ms(timed: TimedEngine, iterations: int, *, cuda: bool) -> dict[str, tuple[float, float]]:
    """Returns the time in ms and the number of each kernel in an iteration, by its name."""
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CUDA] if cuda else [activity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(iterations):
            _, marks = timed.issue()
            timed.read(marks)
    kernels = {}
    for event in profiler.key_averages():
        time_us = event.self_device_time_total if cuda else event.self_cpu_time_total
        if time_us:
            kernels[event.key] = (time_us * 1e-3 / iterations, event.count / iterations)
    return kernels


def run_row(options: argparse.Namespace) -> None:
    """Prints a row's results as JSON on the last line."""
    cuda = options.device == "cuda"
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    torch.set_num_threads(1)
    Communicator.collectives = Copied(device)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    model, _, plan = next(row for row in ROWS if f"{row[0]}/{row[1]}" == options.row)
    settings: Any = SimpleNamespace(
        ranks=RANKS, iterations=1, warmup=0, device=options.device, workload_of=tiny if options.tiny else full
    )
    if cuda:
        use_side_stream(device)
    timed = TimedEngine(experiment_of(settings, model, plan, graphs=False), device)
    for _ in range(3):
        timed.read(timed.issue()[1])
    result: dict[str, Any] = {"kernels": kernels_ms(timed, 2, cuda=cuda)}
    if cuda:
        try:
            result["replayed_ms"] = replayed_ms(timed, options.iterations)
        except Exception as error:  # noqa: BLE001 - the kernels are known all the same
            result["failed"] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    print(json.dumps(result), flush=True)
    os._exit(0)  # a group that moves nothing has nothing to take down


def show(name: str, result: dict[str, Any], top: int) -> None:
    kernels: dict[str, tuple[float, float]] = result["kernels"]
    kinds: dict[str, float] = defaultdict(float)
    for kernel, (time_ms, _) in kernels.items():
        kinds[kind_of(kernel)] += time_ms
    replayed = f"{result['replayed_ms']:.1f} ms" if "replayed_ms" in result else result.get("failed", "unknown")
    print(f"{name}: replayed {replayed}, kernels {sum(kinds.values()):.1f} ms")
    print("    " + ", ".join(f"{kind} {kinds[kind]:.1f}" for kind in (*KINDS, OTHER) if kinds[kind]))
    for kernel, (time_ms, count) in sorted(kernels.items(), key=lambda item: -item[1][0])[:top]:
        print(f"    {time_ms:8.2f} ms {count:6.0f} x {kernel[:110]}")
    sys.stdout.flush()


def main() -> None:
    names = [f"{model}/{name}" for model, name, _ in ROWS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--only", nargs="*", default=names, choices=names, metavar="MODEL/PLAN")
    parser.add_argument("--iterations", type=int, default=8, help="replayed ones")
    parser.add_argument("--top", type=int, default=0, help="also the longest kernels")
    parser.add_argument("--timeout", type=float, default=120, help="seconds of a row")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        run_row(options)
    card = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(
        f"{card}, PyTorch {torch.__version__}, BF16, rank 0 of 2, 16 sequences in micro-batches of {MICRO_BATCH}"
    )
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": QUEUES, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(RANKS)}
    for name in options.only:
        command = [sys.executable, __file__, "--row", name, "--device", options.device]
        command += ["--iterations", str(options.iterations), *(["--tiny"] if options.tiny else [])]
        try:
            done = subprocess.run(
                command, env=os.environ | environment, capture_output=True, text=True, check=False,
                timeout=options.timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{name}: no end after {options.timeout:.0f} s", flush=True)
            continue
        if done.returncode:
            print("\n    ".join([f"{name}: failed", *done.stderr.splitlines()[-6:]]), flush=True)
            continue
        show(name, json.loads(done.stdout.splitlines()[-1]), options.top)


if __name__ == "__main__":
    main()
