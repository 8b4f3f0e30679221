"""Provokes causes of exposed communication with small jobs on CPUs and compares them with the answers of `wirecost
trace`.

usage: python benchmarks/trace_causes.py [JOB ...]

Each job runs two gloo ranks with PyTorch's profiler and prints the shares of the causes that are found in its
traces beside the one that was provoked. On a busy machine ranks wait for each other, which is a true answer too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirecost.trace.explained import Cause

STEPS = 4
WAITING = "waiting_for_rank"


def _layers(torch: Any, count: int = 6, width: int = 512) -> Any:
    """Layers of which the first, whose gradients come last, holds most of the parameters."""
    first = [torch.nn.Linear(width, 4 * width), torch.nn.AvgPool1d(4)]
    return torch.nn.Sequential(*first, *[torch.nn.Linear(width, width) for _ in range(count)])


def _data_parallel(torch: Any, rank: int, *, bucket_mb: float, slow: bool) -> Callable[[], None]:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_layers(torch), bucket_cap_mb=bucket_mb)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, weight = torch.randn(256, 512), torch.randn(512, 512)

    def step() -> None:
        optimizer.zero_grad()
        out = model(inputs)
        for _ in range(40 if slow and rank else 0):
            out = out @ weight * 0.01
        out.sum().backward()
        optimizer.step()

    return step


def _tensor_parallel(torch: Any) -> Callable[[], None]:
    inputs, weight = torch.randn(256, 512), torch.randn(512, 512)

    def step() -> None:
        hidden = inputs
        for _ in range(4):
            hidden = hidden @ weight * 0.01
            torch.distributed.all_reduce(hidden)
        (hidden @ weight).sum()

    return step


def _long_transfer(torch: Any) -> Callable[[], None]:
    inputs, weight, large = torch.randn(256, 512), torch.randn(512, 512), torch.randn(8_000_000)

    def step() -> None:
        work = torch.distributed.all_reduce(large, async_op=True)
        hidden = inputs
        for _ in range(8):
            hidden = inputs @ weight
        work.wait()
        (hidden @ weight).sum()

    return step


JOBS: dict[str, tuple[str, Callable[[Any, int], Callable[[], None]]]] = {
    "buckets": ("last_bucket", lambda torch, rank: _data_parallel(torch, rank, bucket_mb=1, slow=False)),
    "one-bucket": ("last_bucket", lambda torch, rank: _data_parallel(torch, rank, bucket_mb=400, slow=False)),
    "slow-rank": ("waiting_for_rank", lambda torch, rank: _data_parallel(torch, rank, bucket_mb=1, slow=True)),
    "tensor-parallel": ("dependency", lambda torch, rank: _tensor_parallel(torch)),
    "long-transfer": ("longer_than_compute", lambda torch, rank: _long_transfer(torch)),
}


def work(rank: int, job: str, folder: str, port: int) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    step = JOBS[job][1](torch, rank)
    plan = schedule(wait=1, warmup=2, active=STEPS)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        for _ in range(3 + STEPS):
            step()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def shares(causes: Sequence[Cause]) -> str:
    total = sum(c.exposed_ns for c in causes) or 1
    parts = [f"{c.code} {c.exposed_ns / total:.0%}" for c in causes if c.exposed_ns >= 0.01 * total]
    return f"{', '.join(parts)} of {total / 1e6 / STEPS / 2:.1f} ms exposed a step"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=list(JOBS), metavar="JOB")
    options = parser.parse_args()
    if unknown := set(options.jobs) - set(JOBS):
        parser.error(f"no such job: {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}")
    import torch.multiprocessing

    from wirecost.trace import read

    for job in options.jobs:
        folder = Path(tempfile.mkdtemp(prefix="wirecost-causes-"))
        try:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            torch.multiprocessing.spawn(work, (job, str(folder), port), nprocs=2)  # pyright: ignore[reportPrivateImportUsage]
            causes = read(folder).causes
            print(f"{job:16} provoked {JOBS[job][0]:20} found {shares(causes)}", flush=True)
            if JOBS[job][0] != WAITING:
                print(f"{'':16} waits aside {'':17} found {shares([c for c in causes if c.code != WAITING])}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
