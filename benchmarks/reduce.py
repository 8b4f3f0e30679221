"""Reduces traces of real size where they lie, reads the reductions of a large job together, and prints both.

    PYTHONPATH=src python benchmarks/reduce.py --mb 1000 --ranks 1000

Traces are invented (`large_traces.py`). One rank's trace of `--mb` MB is reduced: as JSON, with Python stacks, and
compressed. The job of `--ranks` ranks consists of copies of its reduction with other ranks and start times,
because so many traces fit on no usual disk. CPU time is what an idle machine would take. The reductions of small
traces must give the same JSON as the traces.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from large_traces import write_trace

from wirecost.trace.rank import Options
from wirecost.trace.reduction import SUFFIX, TIMELINE_SEGMENTS, encode_reduction, read_reduction

MB = 1e6
SAME_RANKS, SAME_MB = 4, 10


class Used(NamedTuple):
    """What `wirecost trace` took, and its output."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    output: bytes


def trace(*arguments: str) -> Used:
    """Runs `wirecost trace`. The peak memory is that of its largest process."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "wirecost", "trace", *arguments], stdout=output)
        _, status, used = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"wirecost trace {' '.join(arguments)} failed")
        output.seek(0)
        text = output.read()
    cpu_s = used.ru_utime + used.ru_stime
    return Used(cpu_s, time.monotonic() - began, used.ru_maxrss * 1024 / MB, text)


def size_mb(*paths: Path) -> float:
    return sum(path.stat().st_size for path in paths) / MB


def compressed(path: Path) -> Path:
    """Compresses a file as PyTorch does, and returns the other one."""
    other = path.with_name(f"{path.name}.gz")
    with path.open("rb") as source, gzip.open(other, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    return other


def reduce_one(folder: Path, mb: int, ranks: int) -> tuple[Path, float]:
    """Reduces traces of one rank, prints what each takes, and returns a reduction and the longest CPU time."""
    slowest_s = 0.0
    reduction = folder / "plain" / f"rank-0{SUFFIX}"
    path = folder / "rank0_trace.json"
    for kind in ("plain", "stacks", "gzip"):
        if kind != "gzip":
            write_trace(path, 0, ranks, int(mb * MB), stacks=kind == "stacks")
        file = compressed(path) if kind == "gzip" else path
        used = trace(str(file), "--reduce", str(folder / kind))
        (written,) = (folder / kind).iterdir()
        what = {"plain": "operators", "stacks": "with Python stacks", "gzip": "with Python stacks, compressed"}[
            kind
        ]
        print(
            f"one rank, {what}: {size_mb(path):.0f} MB of JSON"
            f"{f' in {size_mb(file):.0f} MB' if file != path else ''} to {size_mb(written):.2f} MB in "
            f"{used.cpu_s:.1f} s of CPU ({size_mb(path) / used.cpu_s:.0f} MB/s), {used.wall_s:.1f} s in all, "
            f"{used.peak_mb:.0f} MB of memory",
            flush=True,
        )
        slowest_s = max(slowest_s, used.cpu_s)
        if file != path:
            file.unlink()
    path.unlink()
    return reduction, slowest_s


def copies(reduction: Path, folder: Path, ranks: int) -> None:
    """Writes reductions of further ranks, whose calls start up to 50 us earlier or later."""
    options = Options(timeline_segments=TIMELINE_SEGMENTS)
    draw = random.Random(0)
    (original,) = read_reduction(reduction, options)
    folder.mkdir()
    start_ns = original.calls.start_ns.copy()
    latest_ns = original.calls.end_ns - 1
    for rank in range(ranks):
        original.rank, original.file = rank, f"rank{rank}_trace.json"
        original.calls.start_ns = (start_ns + draw.randrange(-50_000, 50_000)).clip(0, latest_ns)
        (folder / f"rank-{rank}{SUFFIX}").write_bytes(encode_reduction(options, [original]))


def gives_the_same(folder: Path) -> bool:
    """Returns whether reductions give the JSON that their traces give."""
    (folder / "traces").mkdir()
    for rank in range(SAME_RANKS):
        write_trace(folder / "traces" / f"rank{rank}_trace.json", rank, SAME_RANKS, int(SAME_MB * MB))
    trace(str(folder / "traces"), "--reduce", str(folder / "reduced"))
    reduced, whole = (trace(str(folder / name), "--format", "json").output for name in ("reduced", "traces"))
    return reduced == whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000, help="size of a rank's trace")
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--per-node", type=int, default=8, help="ranks on a node, for the estimate")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reduction, reduce_s = reduce_one(folder, options.mb, options.ranks)
        copies(reduction, folder / "job", options.ranks)
        files = list((folder / "job").iterdir())
        used = trace(str(folder / "job"))
        print(
            f"{options.ranks} reductions, {size_mb(*files):.0f} MB, read together: {used.cpu_s:.0f} s of CPU, "
            f"{used.wall_s:.0f} s in all on {len(os.sched_getaffinity(0))} cores, {used.peak_mb:.0f} MB of memory"
        )
        nodes = math.ceil(options.ranks / options.per_node)
        for cores in (options.per_node, 1):
            node_s = reduce_s * math.ceil(options.per_node / cores)
            print(
                f"estimate, not measured: {options.ranks} ranks of {options.mb} MB on {nodes} nodes, {cores} core"
                f"{'s' * (cores > 1)} of each: {node_s:.0f} s to reduce + {used.cpu_s:.0f} s to read = "
                f"{(node_s + used.cpu_s) / 60:.1f} min, if its disk gives {cores * options.mb / reduce_s:.0f} MB/s"
            )
        same = gives_the_same(folder)
        print(f"the answer of {SAME_RANKS} reductions is that of their traces: {'yes' if same else 'NO'}")
        return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
