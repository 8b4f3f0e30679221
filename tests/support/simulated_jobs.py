"""Traces of simulated training jobs, in which what is slow is known: a host that launches, streams that run in order,
collectives that end together.

A program is a list of steps for the host of each rank. What differs between ranks is a function of the rank and the
iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.tracefiles import BASE_NS, Writer

Varying = int | Callable[[int, int], int]  # ns, or a function of rank and iteration
Members = Callable[[int], Sequence[int]]

LATENCY = 4_000  # ns from the launch to the start of a kernel
LOADING = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@dataclass
class Kernel:
    """A kernel on the compute stream."""

    ns: Varying
    name: str = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
    count: Varying = 1


@dataclass
class AllReduce:
    """An all-reduce on the stream of its group, after what the compute stream was given before."""

    ns: int
    bytes: int = 32 << 20
    group: str = "0"
    members: Members | None = None  # of a rank: the ranks of its group; all where it isn't given


@dataclass
class Wait:
    """The compute stream waits for all collectives."""


@dataclass
class Synchronise:
    """The host waits for the device."""


@dataclass
class Load:
    """The host loads data."""

    ns: Varying


@dataclass
class Busy:
    """The host does something that no trace shows."""

    ns: Varying


@dataclass
class Send:
    """A send to or receive from another rank: `pairs` are (source, destination), done at once by all."""

    ns: int
    pairs: Sequence[tuple[int, int]]


Step = Kernel | AllReduce | Wait | Synchronise | Load | Busy | Send


@dataclass
class _Rank:
    number: int
    writer: Writer = field(default_factory=Writer)
    host: int = 1_000_000_000
    streams: dict[int, int] = field(default_factory=dict)
    correlation: int = 1
    sequence: dict[str, int] = field(default_factory=dict)

    def launch(self, launch_ns: int) -> int:
        """Launches something; gives when it may start."""
        self.correlation += 1
        self.writer.complete(
            "cuda_runtime", "cudaLaunchKernel", 99, 99, self.host, launch_ns - 500,
            {"External id": self.correlation, "correlation": self.correlation},
        )  # fmt: skip
        self.host += launch_ns
        return self.host - launch_ns // 2 + LATENCY

    def run(self, name: str, stream: int, start: int, end: int, args: dict[str, object] | None = None) -> None:
        self.writer.complete(
            "kernel", name, 0, stream, start, end - start,
            {"device": 0, "stream": stream, "correlation": self.correlation,
             "External id": self.correlation, **(args or {})},
        )  # fmt: skip
        self.streams[stream] = end


def _at(value: Varying, rank: int, iteration: int) -> int:
    return value(rank, iteration) if callable(value) else value


def simulate(
    folder: Path,
    program: Sequence[Step],
    *,
    ranks: int = 2,
    iterations: int = 4,
    launch_ns: Varying = 6_000,
    clock_ns: Callable[[int], int] = lambda rank: 0,
) -> Path:
    """Writes one trace a rank into the folder and gives it. `launch_ns` is what a launch takes the host; `clock_ns`
    is how far a rank's clock is ahead."""
    folder.mkdir(parents=True, exist_ok=True)
    all_ranks = [_Rank(r) for r in range(ranks)]
    for iteration in range(iterations):
        begins = [r.host for r in all_ranks]
        for step in program:
            _do(step, all_ranks, iteration, launch_ns)
        for rank, begin in zip(all_ranks, begins, strict=True):
            rank.writer.complete(
                "user_annotation", f"ProfilerStep#{iteration + 2}", 99, 99, begin, rank.host - begin, {}
            )
    for rank in all_ranks:
        end = max(rank.host, *rank.streams.values()) + 50_000
        rank.writer.complete(
            "Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", 999_990_000, end - 999_990_000
        )
        rank.writer.other(name="Record Window End", ph="i", s="g", pid="", tid="", ts=end)
        info = {"backend": "nccl", "rank": rank.number, "world_size": ranks}
        text = rank.writer.text(info, BASE_NS + clock_ns(rank.number))
        (folder / f"rank{rank.number}.json").write_bytes(text)
    return folder


def _do(step: Step, ranks: list[_Rank], iteration: int, launch_ns: Varying) -> None:
    if isinstance(step, AllReduce | Send):
        _communicate(step, ranks, iteration, launch_ns)
        return
    for rank in ranks:
        n = rank.number
        if isinstance(step, Kernel):
            for _ in range(_at(step.count, n, iteration)):
                start = max(rank.launch(_at(launch_ns, n, iteration)), rank.streams.get(7, 0))
                rank.run(step.name, 7, start, start + _at(step.ns, n, iteration))
        elif isinstance(step, Wait):
            rank.streams[7] = max(rank.streams.values())
        elif isinstance(step, Synchronise):
            end = max(rank.host + 1000, *rank.streams.values())
            rank.writer.complete(
                "cuda_runtime", "cudaDeviceSynchronize", 99, 99, rank.host, end + 2000 - rank.host, {}
            )
            rank.host = end + 2500
        else:
            length = _at(step.ns, n, iteration)
            if isinstance(step, Load) and length:
                rank.writer.complete("user_annotation", LOADING, 99, 99, rank.host, length, {})
            rank.host += length


def _communicate(step: AllReduce | Send, ranks: list[_Rank], iteration: int, launch_ns: Varying) -> None:
    stream = 20 if isinstance(step, Send) else 30 + int(step.group)
    taking = sorted({r for pair in step.pairs for r in pair}) if isinstance(step, Send) else range(len(ranks))
    ready = {
        n: max(
            ranks[n].launch(_at(launch_ns, n, iteration)),
            ranks[n].streams.get(7, 0),
            ranks[n].streams.get(stream, 0),
        )
        for n in taking
    }
    for n in taking:
        rank = ranks[n]
        if isinstance(step, Send):
            for source, destination in step.pairs:
                if n in (source, destination):
                    end = max(ready[source], ready[destination]) + step.ns
                    op = "send" if n == source else "recv"
                    args = {
                        "Collective name": op, "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "BFloat16",
                        "Group size": len(ranks), "Process Group Name": "9", "Process Group Description": "pp",
                        "Src Rank": source, "Dst Rank": destination,
                    }  # fmt: skip
                    rank.run(
                        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", stream, ready[n], end, args
                    )
            continue
        members = list(step.members(n)) if step.members is not None else list(range(len(ranks)))
        if len(members) < 2:
            continue
        sequence = rank.sequence[step.group] = rank.sequence.get(step.group, 0) + 1
        args = {
            "Collective name": "allreduce", "In msg nelems": step.bytes // 2, "Out msg nelems": step.bytes // 2,
            "dtype": "BFloat16", "Group size": len(members), "Process Group Name": step.group,
            "Process Group Ranks": str(members), "Seq": sequence,
        }  # fmt: skip
        end = max(ready[m] for m in members) + step.ns
        rank.run(
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            stream,
            ready[n],
            end,
            args,
        )
