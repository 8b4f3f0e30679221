"""Tables as nccl-tests prints them, computed from a latency and a bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

SIZES = tuple(1 << k for k in range(16, 28))
FACTORS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "alltoall": 1, "gather": 1, "scatter": 1}


def times(size: int, factor: float, busbw_GBps: float, latency_us: float) -> tuple[float, float, float]:
    """Returns the time in us, and algbw and busbw in GB/s, of one size."""
    time = latency_us + factor * size / busbw_GBps / 1e3
    algbw = size / time / 1e3
    return time, algbw, algbw * factor


def cells(time: float, algbw: float, busbw: float, wrong: str = "0") -> str:
    shown = f"{time:.2f}" if time < 1e4 else f"{time:.1f}" if time < 1e5 else f"{time:.0f}"
    return f"  {shown:>7}  {algbw:6.2f}  {busbw:6.2f}  {wrong:>6}"


def devices(hosts: Sequence[str], groups: Sequence[int] | None = None) -> list[str]:
    """Returns the lines that list one device for each given host; `groups` is each rank's group."""
    head = ["# Using devices"]
    for rank, host in enumerate(hosts):
        group = groups[rank] if groups is not None else 0
        head.append(
            f"#  Rank {rank:2} Group {group:2} Pid {1000 + rank:6} on {host:>10} device {rank % 8:2} "
            f"[0000:{rank % 8 + 1:02x}:00] NVIDIA H100 80GB HBM3"
        )
    return head


HEADING = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
""".splitlines()


def body(
    ranks: int,
    *,
    program: str = "all_reduce",
    busbw: float = 300.0,
    latency_us: float = 25.0,
    dtype: str = "float",
) -> list[str]:
    multiple = FACTORS.get(program)
    factor = multiple * (ranks - 1) / ranks if multiple else 1.0
    root = 0 if program in ("gather", "scatter", "broadcast", "reduce") else -1
    redop = "sum" if "reduce" in program else "none"
    rows = []
    for size in SIZES:
        numbers = cells(*times(size, factor, busbw, latency_us))
        rows.append(f"{size:12}  {size // 4:12}  {dtype:>8}  {redop:>6}  {root:>6}{numbers}{numbers}")
    return rows


def table(
    hosts: Sequence[str] = ("nodea",) * 8,
    *,
    program: str = "all_reduce",
    groups: Sequence[int] | None = None,
    busbw: float = 300.0,
    footer: str = "0 OK",
) -> str:
    """Returns the output of a complete run. Its busbw follows from the size of the groups."""
    ranks = len(hosts) if groups is None else len(hosts) // len(set(groups))
    lines = [
        "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809",
        f"# Collective test starting: {program}_perf",
        "# nThread 1 nGpus 1 minBytes 65536 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 "
        "validation: 1 graph: 0",
        "#",
        *devices(hosts, groups),
        *HEADING,
        *body(ranks, program=program, busbw=busbw),
        f"# Out of bounds values : {footer}",
        "# Avg bus bandwidth    : 201.5",
        "#",
        f"# Collective test concluded: {program}_perf",
        "#",
    ]
    return "\n".join(lines) + "\n"
