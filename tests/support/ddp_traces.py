"""Traces of a small data-parallel job, written as torch.profiler writes them, whose times follow by hand.

Each step: the host launches `layers` kernels of backward computing; after each it accumulates a gradient, copies it
into a bucket and starts an all-reduce on another stream; the optimizer waits for all of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMPUTE_STREAM, COMM_STREAM = 7, 17


@dataclass
class Job:
    """What a rank does, in microseconds: a kernel of each layer, its transfer, the host's time between launches."""

    layers: int = 4
    steps: int = 4
    kernel_us: float = 1000.0
    transfer_us: float = 200.0
    host_us: float = 20.0
    elements: int = 1 << 20
    ranks: int = 2
    extra_us: dict[int, float] = field(default_factory=dict)  # by rank: added to each kernel


@dataclass
class _Clock:
    host: float = 0.0
    compute: float = 0.0
    comm: float = 0.0


class DdpTrace:
    """Writes one rank's trace. Collectives begin on all ranks when the slowest rank's gradient is there."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank = job, rank
        self.events: list[dict[str, Any]] = []
        self.clock = _Clock()
        self._correlation = 0

    def event(self, category: str, name: str, start: float, length: float, tid: int, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1 if category != "kernel" else 0, "tid": tid,
             "ts": round(1e6 + start, 3), "dur": round(length, 3), "args": args}
        )  # fmt: skip

    def call(self, name: str, length: float = 5.0) -> tuple[float, int]:
        self.clock.host += self.job.host_us
        start = self.clock.host
        self._correlation += 1
        self.event("cuda_runtime", name, start, length, 100, correlation=self._correlation)
        self.clock.host += length
        return start, self._correlation

    def kernel(self, name: str, begin: float, length: float, stream: int, correlation: int, grid: int) -> float:
        args = {"correlation": correlation, "stream": stream, "grid": [grid, 1, 1], "device": self.rank}
        self.event("kernel", name, begin, length, stream, **args)
        return begin + length

    def compute(self, name: str, length: float, grid: int = 64, after: float = 0.0) -> float:
        start, correlation = self.call("cudaLaunchKernel")
        begin = max(start + 6, self.clock.compute + 1, after)
        self.clock.compute = self.kernel(name, begin, length, COMPUTE_STREAM, correlation, grid)
        return self.clock.compute


def write_job(folder: Path, job: Job) -> Path:
    """Writes a trace for each rank into a folder; returns the folder."""
    traces = [DdpTrace(job, rank) for rank in range(job.ranks)]
    for step in range(job.steps):
        begun = [t.clock.host for t in traces]
        ends: list[float] = []
        for _ in range(job.layers):
            ends.append(_layer(traces, job))
        for trace in traces:
            for end in ends:
                trace.call("cudaStreamWaitEvent", 1.0)
                trace.compute("copy_back", 2.0, after=end + 2)
            trace.compute("optimizer", 100.0)
        for trace, start in zip(traces, begun, strict=True):
            trace.event("user_annotation", f"ProfilerStep#{step}", start, trace.clock.host - start, 100)
    folder.mkdir(parents=True, exist_ok=True)
    for trace in traces:
        info = {"backend": "nccl", "rank": trace.rank, "world_size": job.ranks}
        document = {"distributedInfo": info, "baseTimeNanoseconds": 10**18, "traceEvents": trace.events}
        (folder / f"rank{trace.rank}.json").write_text(json.dumps(document))
    return folder


def _layer(traces: list[DdpTrace], job: Job) -> float:
    """Adds a layer on every rank; returns when its all-reduce ends."""
    launched = []
    for trace in traces:
        trace.compute("backward", job.kernel_us + job.extra_us.get(trace.rank, 0.0))
        trace.event("cpu_op", "torch::autograd::AccumulateGrad", trace.clock.host + 1, 2.0, 100)
        opened = trace.clock.host + 4
        done = trace.compute("bucket_copy", 2.0, grid=job.elements // 1024)
        trace.event("cpu_op", "torch::distributed::reducer::mul_out", opened, trace.clock.host + 1 - opened, 100)
        trace.call("cudaEventRecordWithFlags", 1.0)
        trace.clock.host -= job.host_us
        trace.call("cudaStreamWaitEvent", 1.0)
        start, correlation = trace.call("cudaLaunchKernel")
        described = {
            "Collective name": "allreduce", "In msg nelems": job.elements, "Out msg nelems": job.elements,
            "Group size": job.ranks, "dtype": "Float", "Process Group Name": "0",
            "Process Group Ranks": str(list(range(job.ranks))),
        }  # fmt: skip
        begin = max(start + 6, done + 2, trace.clock.comm + 1)
        launched.append((trace, begin, correlation, described))
    end = max(begin for _, begin, _, _ in launched) + job.transfer_us
    for trace, begin, correlation, described in launched:
        args = {"correlation": correlation, "stream": COMM_STREAM, "grid": [24, 1, 1], **described}
        trace.event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin, end - begin, COMM_STREAM, **args)
        trace.clock.comm = end
    return end
