"""Measures the processor time that `wirecost.watch` takes of a training iteration, and counts its false alarms.

    PYTHONPATH=src python benchmarks/watch.py

Two ranks train with DDP over gloo, alternately with and without a watch, and count their processor time. It prints
the difference for an iteration, and as a share of 50 ms. Then two equal ranks train beside busy processes, and the
times that a rank is named are counted.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ITERATION_S = 0.05
MOST_COST = 0.01
JOB = """
import sys, time, torch, torch.distributed as dist, wirecost
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(12)])
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(iterations):
    begun = time.process_time_ns()
    for _ in range(iterations):
        model(torch.randn(4, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.process_time_ns() - begun) / iterations
train(200)
for _ in range(int(sys.argv[1])):
    without = train(400)
    with wirecost.watch(every=100, print_line=lambda line: None):
        train(20)  # the hooks settle
        watched = train(400)
    if dist.get_rank() == 0:
        print(watched - without, flush=True)
dist.destroy_process_group()
"""
ALIKE = """
import sys, torch, torch.distributed as dist, wirecost
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
lines = []
with wirecost.watch(every=100, print_line=lines.append):
    for _ in range(int(sys.argv[1])):
        model(torch.randn(256, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
if dist.get_rank() == 0:
    print(sum("is late" in line for line in lines))
dist.destroy_process_group()
"""
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def false_alarms(script: Path, iterations: int, busy: int) -> int:
    """Returns how often a rank is named although the ranks are alike, beside some busy processes."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        command = [*LAUNCHER, str(script), str(iterations)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    finally:
        for process in others:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=1000, help="of each count of false alarms")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(JOB)
        command = [*LAUNCHER, str(script), str(options.repetitions)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        script.write_text(ALIKE)
        alarms = {busy: false_alarms(script, options.iterations, busy) for busy in (0, 1, 2)}
    differences_ns = [float(line) for line in done.stdout.split()]
    cost_ns = statistics.median(differences_ns)
    share = cost_ns * 1e-9 / ITERATION_S
    spread = ", ".join(f"{d * 1e-3:.0f}" for d in sorted(differences_ns))
    print(f"watch: {cost_ns * 1e-3:.0f} us of processor time for an iteration ({spread}), {share:.2%} of 50 ms")
    print(f"at most {MOST_COST:.0%}: {share <= MOST_COST}")
    for busy, count in alarms.items():
        print(f"{count} false alarms in {options.iterations} iterations beside {busy} busy processes")


if __name__ == "__main__":
    main()
