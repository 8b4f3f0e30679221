"""Writes profiler traces of an invented job, to try `wirecost trace` on.

`python -m wirecost.trace.example FOLDER` does so from a shell.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float> >(int, float)",
    "triton_poi_fused_gelu_0",
)
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_KERNELS_PER_STEP = 12
_PROCESS, _THREAD, _COMPUTE_STREAM, _NCCL_STREAM = 99, 99, 7, 20
_BASE_NS = 1_727_743_122_000_000_000


@dataclass
class _Rank:
    """The trace of a rank while it is written. Times are in microseconds."""

    rank: int
    clock_us: int
    events: list[dict[str, Any]] = field(default_factory=list)

    def event(self, cat: str, name: str, start_us: int, length_us: int, **args: Any) -> None:
        on_host = cat in ("cpu_op", "cuda_runtime", "user_annotation")
        pid, tid = (_PROCESS, _THREAD) if on_host else (0, args.get("stream", _COMPUTE_STREAM))
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start_us, "dur": length_us}
        self.events.append({**event, "args": args})

    def text(self, ranks: int) -> str:
        return json.dumps(
            {
                "schemaVersion": 1,
                "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": ranks},
                "baseTimeNanoseconds": _BASE_NS,
                "traceEvents": self.events,
            },
            indent=0,
        )


def write_example(folder: Path | str, *, ranks: int = 4, steps: int = 6, late_rank: int | None = 2) -> list[Path]:
    """Writes the traces of an invented data-parallel job as PyTorch's profiler writes them, and returns the paths.

    Each step computes for about 80 ms and all-reduces its gradients, most of which no computation hides.

    Args:
        folder: where the files `rank0.json`, `rank1.json`, ... are written.
        steps: number of recorded iterations.
        late_rank: rank that comes 40 ms late to every all-reduce, because its GPU is idle. None is no rank.
    """
    draw = random.Random(0)  # noqa: S311 - invented times
    traces = [_Rank(rank, 1_000_000 + draw.randrange(5000)) for rank in range(ranks)]
    for step in range(steps):
        begins_us = [trace.clock_us for trace in traces]
        ready_us = []
        for trace in traces:
            _compute(trace, step, draw)
            ready_us.append(trace.clock_us - 2500 + (40_000 if trace.rank == late_rank else draw.randrange(2000)))
        end_us = max(ready_us) + draw.randrange(20_000, 30_000)
        for trace, begin_us, start_us in zip(traces, begins_us, ready_us, strict=True):
            _all_reduce(trace, step, start_us, end_us + draw.randrange(3), ranks)
            trace.event("user_annotation", f"ProfilerStep#{step + 2}", begin_us, trace.clock_us - begin_us)
            trace.clock_us += 100
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank{trace.rank}.json" for trace in traces]
    for path, trace in zip(paths, traces, strict=True):
        path.write_text(trace.text(ranks), encoding="utf-8")
    return paths


def _compute(trace: _Rank, step: int, draw: random.Random) -> None:
    """Adds a copy to the GPU, and kernels with the operators and launches that they come from."""
    at_us = trace.clock_us + draw.randrange(500, 3000)
    trace.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at_us, 1203, stream=_COMPUTE_STREAM, bytes=4096)
    at_us += 1400
    for kernel in range(_KERNELS_PER_STEP):
        length_us = draw.randrange(2000, 9000)
        correlation = step * 100 + kernel
        trace.event("cpu_op", f"aten::op{kernel}", at_us - 400, 300)
        trace.event("cuda_runtime", "cudaLaunchKernel", at_us - 300, 80, correlation=correlation)
        name = _KERNELS[kernel % len(_KERNELS)]
        trace.event("kernel", name, at_us, length_us, stream=_COMPUTE_STREAM, correlation=correlation)
        at_us += length_us + draw.randrange(700)
    trace.clock_us = at_us


def _all_reduce(trace: _Rank, step: int, start_us: int, end_us: int, ranks: int) -> None:
    """Adds the all-reduce of the gradients, and a kernel that starts before it ends."""
    elements = 500_000_000
    arguments = {
        "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements, "Group size": ranks,
        "dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(range(ranks))),
    }  # fmt: skip
    correlation = step * 100 + 50
    length_us = end_us - start_us
    trace.event(
        "kernel", _ALL_REDUCE, start_us, length_us, stream=_NCCL_STREAM, correlation=correlation, **arguments
    )
    beside_us = trace.clock_us + 600
    trace.event("kernel", _KERNELS[0], beside_us, 5000, stream=_COMPUTE_STREAM, correlation=step * 100 + 60)
    trace.clock_us = max(end_us, beside_us + 5000) + 2000


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m wirecost.trace.example", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--even", action="store_true", help="no rank is late")
    options = parser.parse_args()
    if options.ranks < 1 or options.steps < 1:
        parser.error("--ranks and --steps must be at least 1")
    late_rank = None if options.even else 2
    for path in write_example(options.folder, ranks=options.ranks, steps=options.steps, late_rank=late_rank):
        print(path)


if __name__ == "__main__":
    _main()
