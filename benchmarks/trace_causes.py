"""Provokes causes of exposed communication with small jobs and compares them with the answers of `wirecost trace`.

usage: python benchmarks/trace_causes.py [--device cuda] [JOB ...]

Each job runs two ranks with PyTorch's profiler, over gloo or over NCCL on two GPUs (both on one GPU if there is
only one, over sockets). It prints the shares of the causes that are found in its traces beside the one that was
provoked. On a busy machine ranks wait for each other, which is a true answer too. A launch that is late, a first
gather, a pipeline and a collective in the stream of the computation are provoked on GPUs only: on processors a
trace doesn't tell them.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirecost.trace.explained import Cause

STEPS = 4
WAITING = "waiting_for_rank"


@dataclass(frozen=True)
class Place:
    """The device on which a rank computes, and the size of its matrices and of DDP's buckets."""

    torch: Any
    rank: int
    device: Any
    batch: int
    width: int
    bucket_mb: float

    def random(self, *shape: int) -> Any:
        return self.torch.randn(*shape, device=self.device)


Step = Callable[[], None]


def place_of(torch: Any, rank: int, device: str) -> Place:
    if device == "cuda":
        from shared_gpus import device_of

        torch.set_float32_matmul_precision("high")
        return Place(torch, rank, device_of(rank, 2), 4096, 8192, 10_000)
    return Place(torch, rank, torch.device("cpu"), 256, 512, 400)


def _layers(p: Place, count: int = 6) -> Any:
    """Layers of which the first, whose gradients come last, holds most of the parameters."""
    nn = p.torch.nn
    first = [nn.Linear(p.width, 4 * p.width), nn.AvgPool1d(4)]
    return nn.Sequential(*first, *[nn.Linear(p.width, p.width) for _ in range(count)]).to(p.device)


def _data_parallel(p: Place, *, bucket_mb: float, slow: bool = False) -> Step:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_layers(p), bucket_cap_mb=bucket_mb)
    optimizer = p.torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs, weight = p.random(p.batch, p.width), p.random(p.width, p.width)

    def step() -> None:
        optimizer.zero_grad()
        out = model(inputs)
        for _ in range(40 if slow and p.rank else 0):
            out = out @ weight * 0.01
        out.sum().backward()
        optimizer.step()

    return step


def _tensor_parallel(p: Place, *, own_stream: bool) -> Step:
    inputs, weight = p.random(p.batch, p.width), p.random(p.width, p.width)

    def step() -> None:
        hidden = inputs
        for _ in range(4):
            hidden = hidden @ weight * 0.01
            work = p.torch.distributed.all_reduce(hidden, async_op=own_stream)
            if own_stream:
                work.wait()
        (hidden @ weight).sum()

    return step


def _long_transfer(p: Place) -> Step:
    on_gpu = p.device.type == "cuda"
    inputs, weight = p.random(512 if on_gpu else p.batch, p.width), p.random(p.width, p.width)
    large = p.random(500_000_000 if on_gpu else 8_000_000)

    def step() -> None:
        work = p.torch.distributed.all_reduce(large, async_op=True)
        hidden = inputs
        for _ in range(8):
            hidden = inputs @ weight
        work.wait()
        (hidden @ weight).sum()

    return step


def _first_gather(p: Place) -> Step:
    from torch.distributed.fsdp import fully_shard

    nn = p.torch.nn
    model = nn.Sequential(*[nn.Linear(p.width, p.width) for _ in range(6)]).to(p.device)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    inputs = p.random(4 * p.batch, p.width)

    def step() -> None:
        with p.torch.no_grad():
            model(inputs)

    return step


def _late_launch(p: Place) -> Step:
    inputs, weight = p.random(p.batch, p.width), p.random(p.width, p.width)

    def step() -> None:
        hidden = inputs @ weight
        time.sleep(0.02)
        p.torch.distributed.all_reduce(hidden, async_op=True).wait()
        (hidden @ weight).sum()

    return step


def _pipeline(p: Place) -> Step:
    distributed = p.torch.distributed
    weight, state = p.random(p.width, p.width), p.random(p.batch, p.width)

    def compute() -> None:
        for _ in range(8):
            state.copy_(state @ weight * 0.01)

    def step() -> None:
        for stage in (0, 1, 0):  # forward on both stages, then backward on the first one
            if p.rank == stage:
                compute()
                distributed.send(state, 1 - stage)
            else:
                distributed.recv(state, stage)

    return step


JOBS: dict[str, tuple[str, Callable[[Place], Step]]] = {
    "buckets": ("last_bucket", lambda p: _data_parallel(p, bucket_mb=1)),
    "one-bucket": ("last_bucket", lambda p: _data_parallel(p, bucket_mb=p.bucket_mb)),
    "slow-rank": (WAITING, lambda p: _data_parallel(p, bucket_mb=1, slow=True)),
    "tensor-parallel": ("dependency", lambda p: _tensor_parallel(p, own_stream=True)),
    "long-transfer": ("longer_than_compute", _long_transfer),
}
GPU_JOBS: dict[str, tuple[str, Callable[[Place], Step]]] = {
    "late-launch": ("launched_late", _late_launch),
    "first-gather": ("first_gather", _first_gather),
    "pipeline": ("pipeline_bubble", _pipeline),
    "same-stream": ("same_stream", lambda p: _tensor_parallel(p, own_stream=False)),
}


def work(rank: int, jobs: Sequence[str], device: str, folder: str, port: int) -> None:
    """Runs jobs one after another in one rank, which leaves its traces in FOLDER/JOB."""
    import torch

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    place = place_of(torch, rank, device)
    if device == "cuda":
        torch.cuda.set_device(place.device)
    torch.set_num_threads(1)
    backend = "nccl" if device == "cuda" else "gloo"
    limit = timedelta(seconds=60)
    torch.distributed.init_process_group(backend, rank=rank, world_size=2, timeout=limit)
    for job in jobs:
        torch.manual_seed(0)
        try:
            profiled(torch, (JOBS | GPU_JOBS)[job][1](place), device, f"{folder}/{job}/rank{rank}.json")
        except Exception as error:  # noqa: BLE001 - the next job may run
            sys.stderr.write(f"{job}, rank {rank}: {type(error).__name__}: {error}\n")
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def profiled(torch: Any, step: Step, device: str, path: str) -> None:
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities, schedule=schedule(wait=1, warmup=2, active=STEPS)) as profiler:
        for _ in range(3 + STEPS):
            step()
            profiler.step()
    profiler.export_chrome_trace(path)


def shares(causes: Sequence[Cause]) -> str:
    total = sum(c.exposed_ns for c in causes) or 1
    parts = [f"{c.code} {c.exposed_ns / total:.0%}" for c in causes if c.exposed_ns >= 0.01 * total]
    return f"{', '.join(parts)} of {total / 1e6 / STEPS / 2:.1f} ms exposed a step"


def show(job: str, folder: Path) -> bool:
    """Prints what is found in a job's traces. Returns whether what was provoked is the largest, waits aside."""
    from wirecost.errors import WirecostError
    from wirecost.trace import read

    provoked = (JOBS | GPU_JOBS)[job][0]
    try:
        causes = read(folder).causes
    except WirecostError as error:
        print(f"{job:16} provoked {provoked:20} not read: {error}", flush=True)
        return False
    aside = causes if provoked == WAITING else [c for c in causes if c.code != WAITING]
    right = bool(aside) and max(aside, key=lambda c: c.exposed_ns).code == provoked
    print(f"{job:16} provoked {provoked:20} found {shares(causes)}", flush=True)
    if provoked != WAITING:
        print(
            f"{'':16} waits aside {'':17} found {shares(aside)}{'' if right else '  NOT AS PROVOKED'}", flush=True
        )
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    known = JOBS | GPU_JOBS if options.device == "cuda" else JOBS
    jobs = options.jobs or list(known)
    if unknown := set(jobs) - set(known):
        parser.error(f"no such job: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    import torch.multiprocessing

    folder = Path(tempfile.mkdtemp(prefix="wirecost-causes-"))
    try:
        for job in jobs:
            (folder / job).mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        arguments = (jobs, options.device, str(folder), port)
        torch.multiprocessing.spawn(work, arguments, nprocs=2)  # pyright: ignore[reportPrivateImportUsage]
        right = sum([show(job, folder / job) for job in jobs])
        print(f"{right} of {len(jobs)} found as provoked")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
