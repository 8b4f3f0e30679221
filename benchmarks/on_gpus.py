"""Everything that needs GPUs, in one run: the tests that CI can't run, and the benchmarks beside their peers.

    PYTHONPATH=src python benchmarks/on_gpus.py --seconds 540 --out DIR [--only A,B] [--nccl-tests SOURCE]
    python benchmarks/on_gpus.py --list

Each step leaves its log in DIR and prints what that ends with (see lanes.py). Exit code 1 if one failed or did not
run.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path

from lanes import Step, all_gpus, run

PYTHON = sys.executable
PYTEST = f"{PYTHON} -m pytest -v -p no:cacheprovider"
PARITY = " ".join(f"tests/integration/train/test_{name}.py" for name in (
    "data_parallel", "sharded", "tensor_parallel", "pipeline", "steps", "periodic", "precision",
))  # fmt: skip
ON_GPUS = f"env WIRECOST_TEST_DEVICE=cuda {PYTEST} {PARITY}"
ENGINE = f"{PYTHON} benchmarks/engine.py --seconds 400"
PEER = f"{PYTHON} benchmarks/collectives.py {{build}} -b 8 -e 1G"

STEPS = (
    Step("build-nccl-tests", 0, "benchmarks/build_nccl_tests.sh {source} {build}"),
    Step("two-hosts", 0, f"{PYTEST} tests/integration/test_gpu.py -k 'not four'"),
    Step("four-hosts", 0, f"{PYTEST} tests/integration/test_gpu.py -k four"),
    Step("parity-2", 0, f"{ON_GPUS} -k 'not 4'"),
    Step("parity-4", 0, f"{ON_GPUS} -k 4"),
    Step("engine-two", 2, f"{ENGINE} --two --loss plain --skip baseline,megatron,micro-1"),
    Step("engine-medium", 1, f"{ENGINE} --models gpt-2-medium"),
    Step("engine-large", 1, f"{ENGINE} --models gpt-2-large"),
    Step("host-costs", 2, f"{PYTHON} benchmarks/host_costs.py --validate", lines=30),
    Step("nccl-tests", 2, PEER, lines=40),
    Step("nccl-tests-graphs", 2, f"{PEER} -G 1", lines=40),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--out", type=Path, default=Path("on-gpus"))
    parser.add_argument("--only", help="names of steps, with commas")
    parser.add_argument("--nccl-tests", type=Path, help="a checkout of nccl-tests; without it, no such steps")
    parser.add_argument("--gpus", help="which, with commas; all by default")
    parser.add_argument("--list", action="store_true", help="show the steps and stop")
    options = parser.parse_args()
    if options.list:
        for step in STEPS:
            print(f"{step.name:<18} {step.gpus or 'shared'} {'GPU' if step.gpus == 1 else 'GPUs'}  {step.command}")
        return 0
    names = {step.name for step in STEPS}
    wanted = set(options.only.split(",")) if options.only else names
    if unknown := wanted - names:
        parser.error(f"no step {', '.join(sorted(unknown))}; there are: {', '.join(s.name for s in STEPS)}")
    if options.nccl_tests is None:
        wanted = {name for name in wanted if "nccl-tests" not in name}
    deadline = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    paths = {"source": options.nccl_tests, "build": (options.out / "nccl-tests").resolve()}
    steps = [dataclasses.replace(s, command=s.command.format(**paths)) for s in STEPS if s.name in wanted]
    gpus = options.gpus.split(",") if options.gpus else all_gpus()
    bad = run(steps, gpus, options.out, deadline)
    print(f"{len(steps) - len(bad)} of {len(steps)} steps done; failed or not run: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
