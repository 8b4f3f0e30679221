"""What-if answers for jobs of small messages on processors, over networks that state no latency.

    PYTHONPATH=src python benchmarks/whatif_small_messages.py [--runs FOLDER] [--csv FILE]

Runs five small jobs of PyTorch on two ranks over three emulated networks with `wirecost run` (which needs root or
user namespaces, and about five minutes), or reads the results in FOLDER if there are some. Each recording is asked
about the other two networks: with the latency that it tells and the shaper's bucket, and without both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from whatif_on_processors import write_csv

from wirecost.study import Store
from wirecost.whatif.answer import answer_to
from wirecost.whatif.job import Job
from wirecost.whatif.network import NetworkModel, StatedNetwork
from wirecost.whatif.study_cells import (
    measured_answers,
    others,
    read_cell,
    recorded_on,
    step_time_ns,
    study_networks,
)

NETWORKS = "emulated-1g,emulated-300m,emulated-100m"
COMMON = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.out(torch.relu(self.wide(self.norm(x))))

class Net(nn.Module):
    def __init__(self, width, layers, words):
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
kind, width, layers, words = sys.argv[1], *map(int, sys.argv[2:])
net = Net(width, layers, words)
model = net
if kind == "modules":
    for block in net.blocks:
        for module in (block.norm, block.wide, block.out):
            fully_shard(module)
elif kind == "blocks":
    for block in net.blocks:
        fully_shard(block)
if kind in ("modules", "blocks"):
    fully_shard(net)
elif kind.startswith("ddp"):
    model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.05 if kind == "ddp-small" else 25)
optimizer = torch.optim.AdamW(net.parameters())
while True:
    x = torch.randint(0, words, (16, 32))
    nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
    if kind == "parameters":
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
"""
JOBS = {
    "FSDP2, every module sharded": ("modules", 32, 16, 300),
    "FSDP2, every block sharded": ("blocks", 128, 10, 1000),
    "one all-reduce a parameter": ("parameters", 48, 20, 400),
    "DDP, buckets of 50 kB": ("ddp-small", 128, 16, 500),
    "DDP": ("ddp", 256, 6, 2000),
}
"""The kind of job, and the width, layers and words of its network."""


@dataclass(frozen=True)
class Pair:
    """Both answers beside the measurement, times in ms."""

    job: str
    recorded_on: str
    asked: str
    measured_ms: float
    without_low_ms: float
    without_high_ms: float
    low_ms: float
    high_ms: float

    @property
    def inside(self) -> bool:
        return self.low_ms <= self.measured_ms <= self.high_ms

    @property
    def inside_without(self) -> bool:
        return self.without_low_ms <= self.measured_ms <= self.without_high_ms


def run(folder: Path, name: str) -> None:
    """Runs a job over all networks, and keeps its results in a folder."""
    script = folder.parent / f"{folder.name}.py"
    script.write_text(COMMON, encoding="utf-8")
    kind, *sizes = JOBS[name]
    command = [sys.executable, str(script), kind, *map(str, sizes)]
    wirecost = [sys.executable, "-m", "wirecost", "run", "--networks", NETWORKS, "--steps", "12", "--warmup", "3"]
    subprocess.run([*wirecost, "--profile", "4", "--out", str(folder), "--", *command], check=True)


def bare(network: NetworkModel) -> NetworkModel:
    """Returns a network without latency and bucket."""
    return replace(network, latency_s=0.0, bucket_bytes=0.0) if isinstance(network, StatedNetwork) else network


def pairs(folder: Path, name: str) -> Iterator[Pair]:
    """Yields every answer about another network that a job's results allow."""
    for base in Store(folder).results():
        networks = study_networks(folder, base.experiment)
        job, without = (
            Job(
                read_cell(base.directory, base.experiment.ranks),
                step_time_ns=step_time_ns(base),
                networks=known,
                recorded_on=recorded_on(base.experiment),
            )
            for known in (networks, {name: bare(network) for name, network in networks.items()})
        )
        measured = measured_answers(folder, base)
        for question in others(folder, base, ()):
            times = [
                round(ms, 1)
                for answer in (answer_to(without, question), answer_to(job, question))
                for ms in (answer.low_ms, answer.high_ms)
            ]
            yield Pair(
                name, base.experiment.network.name, question.network or "", round(measured[question.text], 1),
                *times,
            )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        runs = options.runs or Path(temporary)
        runs.mkdir(parents=True, exist_ok=True)
        rows = []
        for name, (kind, *_) in JOBS.items():
            if not (runs / kind).exists():
                run(runs / kind, name)
            rows += pairs(runs / kind, name)
    print("| job | recorded on | network | measured ms | without latency ms | | said ms | |\n|" + "---|" * 8)
    for p in rows:
        before, now = ("inside" if inside else "outside" for inside in (p.inside_without, p.inside))
        print(
            f"| {p.job} | {p.recorded_on} | {p.asked} | {p.measured_ms} "
            f"| {p.without_low_ms} to {p.without_high_ms} | {before} | {p.low_ms} to {p.high_ms} | {now} |"
        )
    print(f"\n{sum(p.inside_without for p in rows)} of {len(rows)} inside without latency and bucket, "
          f"{sum(p.inside for p in rows)} with them")  # fmt: skip
    if options.csv is not None:
        write_csv(options.csv, rows)


if __name__ == "__main__":
    main()
