"""Reduces the traces of many ranks where they lie, reads the reductions together, and prints times and sizes.

    PYTHONPATH=src python benchmarks/reduce.py --ranks 1000 --steps 20 --large-steps 12000

Traces are invented in kineto's layout (`tests/support/tracefiles.py`). Reducing is measured on one rank's file of
`--large-steps`, because each machine reduces its own; reading together on `--ranks` files of `--steps`. CPU time
is what an idle machine would take. The reductions of the first 8 ranks must give the same JSON as their traces.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.tracefiles import write_job

MB = 1e6


def run(*arguments: str) -> tuple[float, float, float, bytes]:
    """Returns CPU seconds, wall seconds, peak memory in MB and output of `wirecost trace`."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "wirecost", "trace", *arguments], stdout=output)
        _, status, used = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"wirecost trace {' '.join(arguments)} failed")
        output.seek(0)
        text = output.read()
    return used.ru_utime + used.ru_stime, time.monotonic() - began, used.ru_maxrss * 1024 / MB, text


def size(paths: list[Path]) -> float:
    return sum(path.stat().st_size for path in paths) / MB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--large-steps", type=int, default=12_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("large", "job"):
            (folder / part).mkdir()
        write_job(folder / "large", 2, options.large_steps, kernels=6)
        large = min((folder / "large").iterdir())
        cpu_s, _, peak_mb, _ = run(str(large), "--reduce", str(folder / "large-small"))
        small = size(list((folder / "large-small").iterdir()))
        print(
            f"one rank: {size([large]):.0f} MB to {small:.2f} MB (1/{size([large]) / small:.0f}), "
            f"{cpu_s:.1f} s of CPU ({size([large]) / cpu_s:.0f} MB/s), {peak_mb:.0f} MB of memory"
        )
        write_job(folder / "job", options.ranks, options.steps, kernels=6)
        files = sorted((folder / "job").iterdir())
        run(str(folder / "job"), "--reduce", str(folder / "job-small"))
        reductions = sorted((folder / "job-small").iterdir())
        cpu_s, wall_s, peak_mb, _ = run(str(folder / "job-small"))
        print(
            f"{options.ranks} ranks: {size(files):.0f} MB to {size(reductions):.1f} MB, read together in "
            f"{cpu_s:.1f} s of CPU ({wall_s:.1f} s), {peak_mb:.0f} MB of memory"
        )
        first = [str(folder / "job-small" / f"rank-{rank}.wtrace") for rank in range(8)]
        traces = [str(file) for file in files if any(f"rank{rank}_" in file.name for rank in range(8))]
        same = run(*first, "--format", "json")[3] == run(*traces, "--format", "json")[3]
        print(f"the answer of 8 reductions is that of their traces: {'yes' if same else 'NO'}")
        return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
