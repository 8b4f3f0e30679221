"""Kills the processes of a study at random moments, and prints what came out of it.

    PYTHONPATH=src python benchmarks/soak.py --experiments 200

Every few seconds SIGKILL ends the run, a rank, or any process of the study. A run that ended is started again.
Wanted: every experiment is done in the end, no finished one is lost or run again, none is damaged, and nothing is
left.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.soak import WHOSE, soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shortest", type=float, default=4.0, help="shortest time between two kills, in seconds")
    parser.add_argument("--longest", type=float, default=12.0, help="longest time between two kills, in seconds")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        soaked = soak(
            Path(name),
            options.experiments,
            seed=options.seed,
            kill_every_s=(options.shortest, options.longest),
        )
    kills = ", ".join(f"{soaked.kills[whose]} of {whose}" for whose in WHOSE)
    print(f"{options.experiments} experiments in {soaked.runs} runs, {time.monotonic() - began:.0f} s")
    print(f"killed: {soaked.kills.total()} ({kills})")
    print(f"failed because of it, and run again: {soaked.failed}")
    print(f"results in the end: {dict(soaked.statuses)}; damaged: {soaked.damaged}")
    print(f"finished results lost or run again: {len(soaked.lost)}; left behind: {len(soaked.left)}")
    problems = soaked.problems(options.experiments)
    for problem in problems:
        print(f"problem: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
