"""Compares `wirecost bench` with nccl-tests on the same GPUs in one run.

usage: collectives.py NCCL_TESTS_BUILD [-b 8] [-e 1G] [-n 20] [-G 0] [--gpus 2] [--out FILE.json]

With -G 1 both put the messages into a CUDA graph: latencies without what the host's launching adds, which differs
between a program in C++ and one in Python.

NCCL_TESTS_BUILD holds all_reduce_perf (https://github.com/NVIDIA/nccl-tests). Runs theirs and ours in turn, each
twice, and compares the quicker of each two times: what disturbs a run only makes it slower. The difference between
their two runs is what a difference between theirs and ours is worth. Theirs starts a thread for each GPU (-t),
ours a process; theirs is told to warm up longer than it would (-w), as ours does, until clocks are up.

Targets: bus bandwidth within 2 % from 1 MiB on, latency within 10 % from 8 B to 4 KiB, the sweep in under 60 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from wirecost.collectives.readers import parse_results
from wirecost.collectives.request import Mode
from wirecost.study.environment import describe_environment

Times = dict[tuple[int, Mode], float]

LARGE_BYTES, SMALL_BYTES = 1 << 20, 4 << 10
WARM_UP = 100
LARGE_TARGET, SMALL_TARGET, SWEEP_TARGET_S = 0.02, 0.10, 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("-b", default="8")
    parser.add_argument("-e", default="1G")
    parser.add_argument("-n", type=int, default=20)
    parser.add_argument("-G", type=int, default=0)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not (options.build / "all_reduce_perf").is_file():
        raise SystemExit(f"{options.build}: holds no all_reduce_perf; benchmarks/build_nccl_tests.sh builds it")
    sizes = ["-b", options.b, "-e", options.e, "-f", "2"]
    theirs = [
        str(options.build / "all_reduce_perf"),
        *sizes,
        "-n",
        str(options.n),
        "-w",
        str(WARM_UP),
        "-t",
        str(options.gpus),
        "-G",
        str(options.G),
    ]
    ours = [
        sys.executable, "-m", "wirecost", "bench", "all_reduce", *sizes, "-n", str(options.n), "--backend", "nccl",
        "--ranks-per-host", str(options.gpus), "-G", str(options.G), "--format", "json",
    ]  # fmt: skip
    runs: list[tuple[Times, Times]] = []
    sweep_s = 0.0
    document: dict[str, Any] = {}
    for _ in range(2):
        them = _theirs(theirs, options.gpus)
        start = time.monotonic()
        run = subprocess.run(ours, capture_output=True, text=True, check=False)
        sweep_s = max(sweep_s, time.monotonic() - start)
        if run.returncode:
            print(run.stderr or run.stdout)
            return 1
        document = json.loads(run.stdout)
        runs.append((them, {(r["size_bytes"], Mode(r["mode"])): r["time_ns"] for r in document["rows"]}))
    (first, mine), (second, mine_again) = runs
    columns = ("size (B)", "mode", "theirs us", "again", "ours us", "again")
    print("".join(f"{name:>14}" for name in columns) + "   ours/theirs")
    lines = []
    for size, mode in sorted(mine.keys() & first.keys() & second.keys() & mine_again.keys()):
        key = size, mode
        theirs_ns, ours_ns = [first[key], second[key]], [mine[key], mine_again[key]]
        ratio = min(ours_ns) / min(theirs_ns)
        lines.append(
            {"size_bytes": size, "mode": mode, "theirs_ns": theirs_ns, "ours_ns": ours_ns, "ratio": ratio}
        )
        times = "".join(f"{ns / 1e3:>14.2f}" for ns in (*theirs_ns, *ours_ns))
        print(f"{size:>14}{mode:>14}{times}{ratio:>14.3f}")
    # Time and bus bandwidth are each other's inverse at one size.
    large = [abs(line["ratio"] - 1) for line in lines if line["size_bytes"] >= LARGE_BYTES]
    small = [abs(line["ratio"] - 1) for line in lines if line["size_bytes"] <= SMALL_BYTES]
    repeat = [abs(line["theirs_ns"][0] / line["theirs_ns"][1] - 1) for line in lines]
    summary = {
        "sweep_s": round(sweep_s, 1),
        "large_median": statistics.median(large) if large else None,
        "large_worst": max(large, default=None),
        "small_median": statistics.median(small) if small else None,
        "small_worst": max(small, default=None),
        "theirs_against_theirs_median": statistics.median(repeat) if repeat else None,
    }
    print(f"\nsweep took {sweep_s:.1f} s (target {SWEEP_TARGET_S:.0f})")
    _verdict("bus bandwidth from 1 MiB", large, LARGE_TARGET)
    _verdict("latency to 4 KiB", small, SMALL_TARGET)
    if repeat:
        median, worst = 100 * statistics.median(repeat), 100 * max(repeat)
        print(f"theirs against theirs again: median {median:.1f} %, worst {worst:.1f} %")
    if options.out:
        content = {
            "environment": describe_environment(),
            "network": document["network"],
            "summary": summary,
            "fits": document["fits"],
            "rows": lines,
        }
        options.out.write_text(json.dumps(content, indent=1))
    return 0


def _theirs(command: list[str], gpus: int) -> Times:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(
            f"{command[0]}: exit code {run.returncode}: {run.stderr.strip() or run.stdout.strip()[-500:]}"
        )
    return {(r.size_bytes, r.mode): r.time_ns for r in parse_results(run.stdout, "nccl-tests", ranks=gpus).rows}


def _verdict(what: str, differences: list[float], target: float) -> None:
    if differences:
        median, worst = 100 * statistics.median(differences), 100 * max(differences)
        met = "met" if worst <= 100 * target else "met by the median only" if median <= 100 * target else "missed"
        print(
            f"{what}: median {median:.1f} % from theirs, worst {worst:.1f} % (target {100 * target:.0f} %: {met})"
        )


if __name__ == "__main__":
    sys.exit(main())
