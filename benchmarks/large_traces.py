"""Writes invented traces of the size that real ones have: an iteration's events in kineto's layout, repeated.

    PYTHONPATH=src python benchmarks/large_traces.py FOLDER --ranks 2 --mb 1000 [--stacks]

An iteration has 2,700 kernels, the operators and runtime calls that launch them, arrows between them, and 25
all-reduces in backward. A kernel has as many other events as in a trace of PyTorch 2.7 of GPT-2 on an H200. With
`--stacks` it has the Python functions of `with_stack=True` as well, which then are half of the file.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

KERNELS, BUCKETS = 2700, 25
KERNEL_NS, GAPS_NS, TRANSFER_NS = 41_000, (900, 2_500), 2_400_000
BASE_NS = 1_727_743_122_000_000_000
NAMES = (
    "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NTT",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel"
    "_cuda(at::TensorIteratorBase&)::{lambda()#3}>(at::TensorIteratorBase&)>(int, at::native::Functor)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >("
    "int, float)",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, bfloat16_t> >",
)
OPERATORS = ("aten::linear", "aten::addmm", "aten::to", "aten::_to_copy", "aten::copy_")
REDUCTION = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def event(cat: str, name: str, pid: int, tid: int, start_ns: int, ns: int, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {us(start_ns)}, "dur": {us(ns)},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def arrow(ph: str, cat: str, number: int, pid: int, tid: int, at_ns: int) -> str:
    end = ', "bp": "e"' if ph == "f" else ""
    return (
        f'  {{\n    "ph": "{ph}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {us(at_ns)},\n'
        f'    "cat": "{cat}", "name": "{cat}"{end}\n  }}'
    )


def launched(number: int, thread: int, host_ns: int, device: tuple[int, int], *, stacks: bool) -> Iterator[str]:
    """Yields a kernel, the operators and the call that launch it, and the arrows between them.

    Args:
        device: start and duration of the kernel in ns.
    """
    for depth in range(12 if stacks else 0):
        parent = number * 12 + depth
        args = f'"Python parent id": {parent}, "Python id": {parent + 1}, "Ev Idx": {number}'
        name = f"torch/nn/modules/module.py({1700 + depth}): _wrapped_call_impl"
        start_ns, ns = host_ns - 9000 + 100 * depth, 8000 - 200 * depth
        yield event("python_function", name, 35, thread, start_ns, ns, args)
    for depth, name in enumerate(OPERATORS):
        args = (
            f'"External id": {number * 5 + depth}, "Record function id": 0, "Sequence number": {number}, '
            f'"Fwd thread id": 0, "Ev Idx": {number * 5 + depth}'
        )
        yield event("cpu_op", name, 35, thread, host_ns - 5000 + 400 * depth, 4800 - 500 * depth, args)
    args = f'"External id": {number * 5 + 4}, "cbid": 211, "correlation": {number}'
    yield event("cuda_runtime", "cudaLaunchKernel", 35, thread, host_ns - 2200, 1900, args)
    yield arrow("s", "ac2g", number, 35, thread, host_ns - 2200)
    if number % 2:
        args = f'"cbid": 135, "correlation": {number + 10**9}'
        yield event("cuda_runtime", "cudaEventRecord", 35, thread, host_ns - 200, 150, args)
        yield arrow("s" if thread == 35 else "f", "fwdbwd", number, 35, thread, host_ns - 5000)
    args = (
        f'"External id": {number * 5 + 4}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
        f'"correlation": {number}, "registers per thread": 168, "shared memory": 213248, '
        '"blocks per SM": 0.969697, "warps per SM": 11.636364, "grid": [2, 64, 1], "block": [384, 1, 1], '
        '"est. achieved occupancy %": 19'
    )
    yield event("kernel", NAMES[number % len(NAMES)], 0, 7, *device, args)
    yield arrow("f", "ac2g", number, 0, 7, device[0])


def reduced(number: int, ranks: int, host_ns: int, start_ns: int, end_ns: int) -> Iterator[str]:
    """Yields an all-reduce, and the annotation and the call that launch it."""
    yield event("user_annotation", "nccl:all_reduce", 35, 135, host_ns - 900, 9000, f'"External id": {number * 5}')
    args = f'"cbid": 430, "correlation": {number}'
    yield event("cuda_runtime", "cudaLaunchKernelExC", 35, 135, host_ns, 7000, args)
    args = (
        f'"External id": {number * 5}, "queued": 0, "device": 0, "context": 1, "stream": 20, '
        f'"correlation": {number}, "Collective name": "allreduce", "In msg nelems": 6553600, '
        f'"Out msg nelems": 6553600, "Group size": {ranks}, "dtype": "Float", "Process Group Name": "0", '
        f'"Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, ..., {ranks - 1}]", '
        '"grid": [24, 1, 1], "block": [544, 1, 1]'
    )
    yield event("kernel", REDUCTION, 0, 20, start_ns, end_ns - start_ns, args)


def iteration(rank: int, ranks: int, step: int, begin_ns: int, *, stacks: bool) -> Iterator[str]:
    """Yields the events of an iteration. All-reduces end together on all ranks."""
    draw = random.Random(f"{rank} {step}")
    first = 1 + step * (KERNELS + BUCKETS)
    at_ns, ended_ns = begin_ns + 400_000, begin_ns
    every = 2 * KERNELS // 3 // BUCKETS
    lengths_ns = [round(KERNEL_NS * draw.uniform(0.2, 1.6)) for _ in range(KERNELS)]
    for kernel, length_ns in enumerate(lengths_ns):
        host_ns = begin_ns + 20_000 + kernel * (KERNEL_NS - 2000)
        done = kernel - KERNELS // 3 + 1  # of backward
        yield from launched(first + kernel, 135 if done > 0 else 35, host_ns, (at_ns, length_ns), stacks=stacks)
        at_ns += length_ns + draw.randrange(*GAPS_NS)
        if done > 0 and done % every == 0:
            number = first + KERNELS + done // every - 1
            end_ns = begin_ns + 400_000 + (kernel + 1) * (KERNEL_NS + GAPS_NS[1]) + TRANSFER_NS
            start_ns = max(ended_ns + 1000, min(at_ns + draw.randrange(90_000), end_ns - TRANSFER_NS // 2))
            yield from reduced(number, ranks, host_ns + 1000, start_ns, end_ns)
            ended_ns = end_ns
    yield event("user_annotation", f"ProfilerStep#{step}", 35, 35, begin_ns, ITERATION_NS, '"External id": 1')


ITERATION_NS = KERNELS * (KERNEL_NS + GAPS_NS[1]) + 2 * TRANSFER_NS


def write_trace(path: Path, rank: int, ranks: int, size_bytes: int, *, stacks: bool = False) -> None:
    """Writes the trace of a rank with whole iterations, until the file has `size_bytes` bytes."""
    with path.open("w") as file:
        info = f'{{"backend": "nccl", "rank": {rank}, "world_size": {ranks}, "nccl_version": "2.26.2"}}'
        file.write(f'{{\n  "schemaVersion": 1,\n  "distributedInfo": {info},\n  "traceEvents": [\n')
        begin_ns, step = 1_000_000_000, 0
        while file.tell() < size_bytes:
            file.write(",\n".join(iteration(rank, ranks, step, begin_ns, stacks=stacks)) + ",\n")
            begin_ns, step = begin_ns + ITERATION_NS, step + 1
        args = '"Op count": 0'
        file.write(
            event("Trace", "PyTorch Profiler (0)", 35, 35, 999_000_000, begin_ns - 998_000_000, args)
            + f'\n  ],\n  "traceName": "rank{rank}.json", "displayTimeUnit": "ms", '
            f'"baseTimeNanoseconds": {BASE_NS}\n}}\n'
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--stacks", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for rank in range(options.ranks):
        path = options.folder / f"rank{rank}_trace.json"
        write_trace(path, rank, options.ranks, options.mb * 10**6, stacks=options.stacks)


if __name__ == "__main__":
    main()
