"""Runs damaged inputs through the command line and prints, by kind, how the commands ended.

    python benchmarks/fuzz.py [--kind traces logs ...] [--seed 0] [--count 1000] [--keep FOLDER]

Input `seed`, `seed` + 1, ... of each kind is made, read in this process and judged: exit code 0, 1 or 2, a refusal
in one line, no traceback, no `nan` or `inf`, no control character, bounded time and memory. A fault names its seed
and its command; `--keep` keeps the input. The exit code is 1 if there was any.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.fuzzing.kinds import KINDS, prepare
from support.fuzzing.oracle import run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    without_drawing()
    faults = 0
    print(f"{'kind':<13} {'inputs':>7} {'answered':>9} {'failed':>7} {'refused':>8} {'faults':>7} {'ms each':>8}")
    for kind in options.kind:
        codes: Counter[Any] = Counter()
        start = time.process_time()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "input"
            for seed in range(options.seed, options.seed + options.count):
                argv = prepare(kind, seed, folder)
                ending = run(argv)
                codes["fault" if ending.fault else ending.code] += 1
                if ending.fault:
                    print(f"{kind} {seed}: wirecost {' '.join(argv)}\n{ending.fault}", file=sys.stderr, flush=True)
                    if options.keep:
                        shutil.copytree(folder, options.keep / f"{kind}-{seed}", dirs_exist_ok=True)
        each_ms = (time.process_time() - start) / options.count * 1e3
        faults += codes["fault"]
        print(
            f"{kind:<13} {options.count:>7} {codes[0]:>9} {codes[1]:>7} {codes[2]:>8} {codes['fault']:>7} "
            f"{each_ms:>8.1f}",
            flush=True,
        )
    sys.exit(bool(faults))


def without_drawing() -> None:
    """Makes charts be built but not drawn: drawing takes a second each and doesn't depend on the input."""
    from wirecost.report import collective_figure, figures

    for module in (collective_figure, figures):
        module.render = lambda jobs: [b"" for _ in jobs]  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
