"""Measures what `wirecost.watch` takes of a training iteration, and counts its false alarms.

    PYTHONPATH=src python benchmarks/watch.py
    PYTHONPATH=src python benchmarks/watch.py --device cuda --repetitions 5    # on two GPUs, within a minute
    PYTHONPATH=src python benchmarks/watch.py --device cuda --ranks 1          # on one GPU

Two ranks train with DDP over gloo, or over NCCL on GPUs, alternately with and without a watch. It prints how much
processor time a watch takes of an iteration, also as a share of 50 ms, and on GPUs by how much iterations get
longer. Then two equal ranks train beside busy processes, and the times that a rank is named are counted.
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
START = """
import os, sys, time, torch, torch.distributed as dist, wirecost
cuda = sys.argv[2] == "cuda"
dist.init_process_group("nccl" if cuda else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
torch.set_num_threads(1)
wait = torch.cuda.synchronize if cuda else lambda: None
"""
JOB = (
    START
    + """
width, batch, block = (4096, 16384, 40) if cuda else (64, 4, 400)
model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(12)]).to(device)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
inputs = torch.randn(batch, width, device=device)
def train(iterations):
    wait()
    begun, began_s = time.process_time_ns(), time.perf_counter()
    for _ in range(iterations):
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            loss = model(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    issued = time.process_time_ns()
    wait()
    return (issued - begun) / iterations, (time.perf_counter() - began_s) / iterations
train(block // 2)
for _ in range(int(sys.argv[1])):
    without = train(block)
    with wirecost.watch(every=100, print_line=lambda line: None):
        train(20)  # the hooks settle
        watched = train(block)
    if dist.get_rank() == 0:
        print(watched[0] - without[0], without[1], watched[1], flush=True)
dist.destroy_process_group()
"""
)
ALIKE = (
    START
    + """
width, batch = (2048, 4096) if cuda else (256, 256)
model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)]).to(device)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
lines = []
with wirecost.watch(every=100, print_line=lines.append):
    for _ in range(int(sys.argv[1])):
        model(torch.randn(batch, width, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    wait()
if dist.get_rank() == 0:
    print(sum("is late" in line for line in lines))
dist.destroy_process_group()
"""
)
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def run(script: Path, number: int, options: argparse.Namespace) -> str:
    """Returns what a job prints. Raises SystemExit with its error if it fails."""
    command = [*LAUNCHER, "--nproc-per-node", str(options.ranks), str(script), str(number), options.device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def false_alarms(script: Path, busy: int, options: argparse.Namespace) -> int:
    """Returns how often a rank is named although the ranks are alike, beside some busy processes."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        return int(run(script, options.iterations, options))
    finally:
        for process in others:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=1000, help="of each count of false alarms")
    parser.add_argument("--busy", type=int, nargs="*", default=[0, 1, 2], help="processes beside each count")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(JOB)
        printed = run(script, options.repetitions, options).splitlines()
        lines = [tuple(map(float, line.split())) for line in printed]
        differences_ns = [line[0] for line in lines]
        cost_ns = statistics.median(differences_ns)
        share = cost_ns * 1e-9 / ITERATION_S
        spread = ", ".join(f"{d * 1e-3:.0f}" for d in sorted(differences_ns))
        print(
            f"watch: {cost_ns * 1e-3:.0f} us of processor time for an iteration ({spread}), {share:.2%} of 50 ms"
        )
        print(f"at most {MOST_COST:.0%}: {share <= MOST_COST}", flush=True)
        if options.device == "cuda":
            longer = statistics.median(watched / without - 1 for _, without, watched in lines)
            each = ", ".join(f"{watched / without - 1:+.2%}" for _, without, watched in lines)
            usual_ms = 1e3 * statistics.median(without for _, without, _ in lines)
            print(f"an iteration of {usual_ms:.2f} ms takes {longer:+.2%} longer with a watch ({each})")
            print(f"at most {MOST_COST:.0%}: {longer <= MOST_COST}", flush=True)
        script.write_text(ALIKE)
        for busy in options.busy if options.ranks > 1 else ():
            count = false_alarms(script, busy, options)
            print(
                f"{count} false alarms in {options.iterations} iterations beside {busy} busy processes", flush=True
            )


if __name__ == "__main__":
    main()
