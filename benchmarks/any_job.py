"""Compares what `wirecost run` reports with a job's own timing in the same run, and measures the cost of its hook.

    PYTHONPATH=src python benchmarks/any_job.py                          # CPUs: 1 Gb/s, 300 and 60 Mb/s
    PYTHONPATH=src python benchmarks/any_job.py --networks native        # in place, on GPUs with --device cuda

It prints the median iteration that the job measures itself and the one that is reported, the difference, the
hook's cost for each iteration, and this as a share of 50 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from wirecost.jobs.environment import HOOK
from wirecost.study.job_study import job_study, run_job
from wirecost.study.progress import Silent

TOLERANCE = 0.02
MOST_COST = 0.01
ITERATION_S = 0.05

JOB = """
import os, sys, time, torch, torch.distributed as dist
path, width, layers, device = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
dist.init_process_group("nccl" if device == "cuda" else "gloo")
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).to(device)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
with open(f"{path}-{dist.get_rank()}", "w", buffering=1) as file:
    while True:
        begun = time.perf_counter()
        model(torch.randn(64, width, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        file.write(f"{time.perf_counter() - begun}\\n")
"""

COST = """
import os, time, torch
parameter = torch.nn.Parameter(torch.zeros(1, device=os.environ["DEVICE"]))
parameter.grad = torch.zeros_like(parameter)
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(200):
    optimizer.step()
begun = time.process_time_ns()
for _ in range(5000):
    optimizer.step()
print((time.process_time_ns() - begun) / 5000)
"""


def compare(network: str, iterations: int, warmup: int, *, width: int, layers: int, device: str) -> float:
    """Prints and returns the relative difference between the reported and the job's own median iteration."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(JOB)
        own = Path(folder) / "own"
        study = job_study(
            [sys.executable, str(script), str(own), str(width), str(layers), device],
            name="job",
            networks=[network],
            hosts=["1x2"] if network == "native" else ["2"],
            iterations=iterations,
            warmup=warmup,
            profile_iterations=3,
            iteration_regex=None,
            timeout="5 min",
        )
        (result,) = run_job(study, None, resume=False, retry_failed=False, progress=Silent())
        if result.breakdown is None:
            raise SystemExit(f"{network}: {result.outcome.status}: {result.outcome.reason}")
        measured = result.breakdown.iteration_ns()
        assert measured is not None
        # The measured iterations are those after the warm-up, each as long as on its slowest rank.
        by_rank = [[float(line) for line in Path(f"{own}-{rank}").read_text().split()] for rank in range(2)]
        same = [rank_times[warmup : warmup + iterations] for rank_times in by_rank]
        own_s = statistics.median(max(times) for times in zip(*same, strict=True))
    difference = measured.median * 1e-9 / own_s - 1
    print(
        f"{network:15} own {own_s * 1e3:8.2f} ms  reported {measured.median * 1e-6:8.2f} ms  "
        f"difference {difference:+.2%}  (n = {measured.n})"
    )
    return difference


def hook_cost_ns(device: str, repetitions: int) -> float:
    """Returns the processor time in ns that the hook adds to an optimizer's step."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "DEVICE": device, "OMP_NUM_THREADS": "1"}
        hooked = {
            "PYTHONPATH": os.pathsep.join([str(HOOK), os.environ.get("PYTHONPATH", "")]),
            "WIRECOST_JOB": folder,
            "WIRECOST_JOB_ITERATIONS": "1000000",
        }
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(repetitions):
            for with_hook in (False, True):
                run = subprocess.run(
                    [sys.executable, "-c", COST],
                    env={**variables, **(hooked if with_hook else {})},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                times[with_hook].append(float(run.stdout))
    return min(times[True]) - min(times[False])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--networks", nargs="+", default=["emulated-1g", "emulated-300m", "emulated-60m"])
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, help="Write the numbers to this JSON file.")
    options = parser.parse_args()
    differences = {
        network: compare(
            network,
            options.iterations,
            options.warmup,
            width=options.width,
            layers=options.layers,
            device=options.device,
        )
        for network in options.networks
    }
    cost_ns = hook_cost_ns(options.device, options.repetitions)
    share = cost_ns * 1e-9 / ITERATION_S
    print(f"hook            {cost_ns * 1e-3:.1f} us of processor time for a step, {share:.3%} of 50 ms")
    worst = max(map(abs, differences.values()))
    print(f"within {TOLERANCE:.0%}: {worst <= TOLERANCE}; cost at most {MOST_COST:.0%}: {share <= MOST_COST}")
    if options.out:
        options.out.write_text(json.dumps({"differences": differences, "hook_ns": cost_ns}, indent=1))


if __name__ == "__main__":
    main()
