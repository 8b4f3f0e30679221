"""Measures time and peak memory of every kind of report on stores of many cells.

    python benchmarks/report_speed.py [--cells 24 1000 10000] [--kinds table csv ...] [--iterations 8] [--keep DIR]

`first` is the first report of a store, which reads every result and writes the index; the others use it.
`status` is `wirecost study status`.

Makes a store of invented results (several workloads, networks, plans, host counts; about one cell in thirty
failed, ran out of memory or was skipped), with the files that a real run leaves. Each report is a process of its
own. Printed are its CPU time (user and system), its wall time and its peak memory, beside what is wanted. CPU time
is what an idle machine would take: on a loaded one the wall time says little. The size is that of the page, or of
what was printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from wirecost.breakdown import (
    Breakdown,
    Collective,
    Iteration,
    MemoryKind,
    NetworkRecord,
    Parts,
    PeakMemory,
    Phase,
    Source,
)
from wirecost.diagnostics import diagnostic
from wirecost.spec import Experiment, Study, to_yaml
from wirecost.study.index import INDEX
from wirecost.study.store import Outcome, Status

MS = 1_000_000
SHAPES = {24: (2, 3, 1), 1_000: (10, 5, 5), 10_000: (25, 10, 10)}
"""Workloads, networks and plans of a matrix with four scales."""
WANTED_S = {
    1_000: {"table": 10.0, "all rows": 10.0, "csv": 10.0, "json": 10.0, "page": 10.0, "figures": 10.0},
    10_000: {"first": 15.0, "table": 5.0, "status": 3.0, "page": 60.0},
}
WANTED_MIB = 2048


@dataclass(frozen=True)
class Kind:
    """One kind of report: its name and its options, in which `OUT` stands for a directory to write to."""

    name: str
    options: tuple[str, ...]


KINDS = (
    Kind("first", ()),
    Kind("table", ()),
    Kind("status", ()),
    Kind("all rows", ("--all",)),
    Kind("csv", ("--format", "csv")),
    Kind("json", ("--format", "json")),
    Kind("page", ("--format", "csv", "--html", "OUT/page.html")),
    Kind("figures", ("--format", "csv", "--figures", "OUT/figures")),
)


def make_study(cells: int, iterations: int) -> Study:
    """Returns a study whose matrix has at least `cells` cells."""
    workloads, networks, plans = SHAPES.get(cells, (-(-cells // 400), 10, 10))
    sync = ("all_reduce", "ddp", "zero1", "zero2", "zero3")
    return Study.model_validate(
        {
            "name": f"invented-{cells}",
            "workloads": [
                {
                    "name": f"gpt-{n + 1}x64", "layers": n + 1, "hidden": 64, "heads": 2, "vocab_size": 512,
                    "sequence_length": 128,
                }
                for n in range(workloads)
            ],
            "networks": [
                {"name": f"link-{100 * (n + 1)}m", "emulate": {"rate": f"{100 * (n + 1)} Mb/s"}}
                for n in range(networks)
            ],
            "plans": [
                {
                    "name": f"{sync[n % 5].replace('_', '-')}{'' if n < 5 else '-fp16'}",
                    "data_parallel": sync[n % 5],
                    "gradient_traffic": "native" if n < 5 else "fp16",
                }
                for n in range(plans)
            ],
            "hosts": [2, 4],
            "scaling": [{"kind": "strong", "global_batch": 16}, {"kind": "weak", "micro_batch": 4}],
            "iterations": iterations,
        }
    )  # fmt: skip


def make_breakdown(e: Experiment, draw: random.Random) -> Breakdown:
    """Returns a breakdown whose compute depends on the workload and whose communication depends on the network."""
    assert e.network.emulate is not None
    assert e.network.emulate.rate is not None
    rate_bps = 0.98 * e.network.emulate.rate
    size_bytes = 400_000 * e.workload.layers
    expected_ns = round(2 * (e.ranks - 1) / e.ranks * size_bytes * 8 / rate_bps * 1e9)
    compute_ns = 40 * MS * e.workload.layers // e.ranks
    iterations = []
    for rank in range(e.ranks):
        for number in range(e.iterations):
            compute, comm = round(compute_ns * draw.uniform(0.95, 1.1)), round(expected_ns * draw.uniform(1, 1.1))
            idle = draw.randrange(MS)
            iterations.append(
                Iteration(
                    rank=rank,
                    name=str(number + e.warmup),
                    parts=Parts(
                        window_ns=compute + comm + idle, compute_only_ns=compute, overlapped_ns=0,
                        exposed_comm_ns=comm, exposed_memory_ns=0, idle_ns=idle,
                    ),
                    phases={
                        Phase.DATA: 0, Phase.FORWARD: compute // 3, Phase.BACKWARD: compute - compute // 3,
                        Phase.GRAD_SYNC: comm, Phase.OPTIMIZER: idle // 2, Phase.OTHER: idle - idle // 2,
                    },
                    start_ns=number * 1_000 * MS,
                    loss=draw.uniform(5, 8),
                )
            )  # fmt: skip
    transfer_ns = round(expected_ns * draw.uniform(0.95, 1.2))
    return Breakdown(
        source=Source.MEASURED,
        title=e.slug,
        world_size=e.ranks,
        iterations=tuple(iterations),
        collectives=tuple(
            Collective(
                rank=rank, op="all_reduce", group="data_parallel", group_size=e.ranks, count=e.iterations,
                bytes=size_bytes * e.iterations, duration_ns=(transfer_ns + MS) * e.iterations,
                wait_ns=MS * e.iterations, transfer_ns=transfer_ns * e.iterations,
                transfer_median_ns=transfer_ns, expected_ns=expected_ns * e.iterations,
            )
            for rank in range(e.ranks)
        ),
        network=NetworkRecord(
            name=e.network.name, emulated=True, transport="tcp", nominal_rate_bps=e.network.emulate.rate,
            measured_rate_bps=rate_bps, mean_use_bps=0.3 * rate_bps, peak_use_bps=0.9 * rate_bps,
            tcp_retransmitted=0.0,
        ),
        peak_memory=tuple(
            PeakMemory(
                rank=rank, kind=MemoryKind.RESIDENT_SET, since="first_measured_iteration",
                peak_bytes=(400 << 20) + draw.randrange(64 << 20),
            )
            for rank in range(e.ranks)
        ),
        tokens_per_iteration=e.tokens_per_iteration,
        diagnostics=(diagnostic("shared_cores", f"{e.ranks} ranks share 2 processor cores"),),
    )  # fmt: skip


def make_outcome(draw: random.Random) -> Outcome:
    chance = draw.random()
    if chance < 0.01:
        return Outcome(status=Status.OOM, reason="rank 0: OutOfMemoryError: tried to allocate 1 TiB", rank=0)
    if chance < 0.02:
        return Outcome(status=Status.FAILED, reason=f"rank 1: ValueError: {draw.randrange(40)}", rank=1)
    if chance < 0.03:
        return Outcome(status=Status.SKIPPED, reason="the link is faster than this machine can shape")
    return Outcome(status=Status.DONE, seconds=7.5)


def counter_lines(hosts: int, samples: int = 60) -> str:
    """Returns counters like those of a run of six seconds."""
    rows = [
        {
            "t_ns": 100 * MS * n, "unix_ns": 1_700_000_000 * 10**9 + 100 * MS * n, "kind": "ethernet",
            "device": f"host{host}", "rx_bytes": 2_000_000 * n, "tx_bytes": 2_000_000 * n, "link_Bps": 12.5e6,
            "late_ns": 0,
        }
        for n in range(samples)
        for host in range(hosts)
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


def sample_lines(breakdown: Breakdown, rank: int) -> str:
    """Returns lines with the fields of samples that the report over time reads."""
    spans = [(i.start_ns or 0, i.parts.window_ns) for i in breakdown.iterations if i.rank == rank]
    rows = [{"warmup": False, "start_ns": start, "end_ns": start + window} for start, window in spans]
    return "".join(json.dumps(row) + "\n" for row in rows)


def dumped(experiment: Experiment, cache: dict[str, str]) -> str:
    """Returns the experiment's YAML, composed of cached parts because most cells share most of them."""
    parts = []
    for key, value in experiment.model_dump(mode="json", exclude_none=True).items():
        part = {key: value}
        name = repr(part)
        if name not in cache:
            cache[name] = yaml.safe_dump(part, sort_keys=False, allow_unicode=True, width=100)
        parts.append(cache[name])
    return "".join(parts)


def make_store(root: Path, cells: int, iterations: int) -> None:
    """Writes a store of `cells` finished cells."""
    study, draw, yaml_cache = make_study(cells, iterations), random.Random(0), {}
    root.mkdir(parents=True, exist_ok=True)
    (root / "study.yaml").write_text(to_yaml(study))
    environment = json.dumps({"time": "2026-01-01T00:00:00+00:00", "cores": 2, "packages": {"torch": "2.6.0"}})
    counters = {hosts: counter_lines(hosts) for hosts in (2, 4)}
    for experiment in islice(study.model_experiments(), cells):
        folder = root / "experiments" / experiment.slug
        (folder / "samples").mkdir(parents=True)
        outcome = make_outcome(draw)
        (folder / "experiment.yaml").write_text(dumped(experiment, yaml_cache))
        (folder / "environment.json").write_text(environment)
        (folder / "counters.jsonl").write_text(counters[experiment.hosts])
        if outcome.status is Status.DONE:
            breakdown = make_breakdown(experiment, draw)
            for rank in range(experiment.ranks):
                (folder / "samples" / f"rank-{rank}.jsonl").write_text(sample_lines(breakdown, rank))
            (folder / "breakdown.json").write_text(breakdown.model_dump_json(indent=1))
        (folder / "status.json").write_text(outcome.model_dump_json(indent=1))


@dataclass(frozen=True)
class Cost:
    """The cost of one report, and the size of its page or of its output."""

    exit_code: int
    cpu_s: float
    wall_s: float
    peak_mib: float
    size_bytes: int


def measure(root: Path, kind: Kind, out: Path) -> Cost:
    out.mkdir(exist_ok=True)
    options = [option.replace("OUT", str(out)) for option in kind.options]
    if kind.name == "first":
        (root / INDEX).unlink(missing_ok=True)
    subcommand = ["study", "status"] if kind.name == "status" else ["report"]
    command = [sys.executable, "-m", "wirecost", *subcommand, str(root), *options]
    printed, page = out / f"{kind.name}.out", out / "page.html"
    start = time.monotonic()
    with printed.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
    return Cost(
        exit_code=os.waitstatus_to_exitcode(status),
        cpu_s=used.ru_utime + used.ru_stime,
        wall_s=time.monotonic() - start,
        peak_mib=used.ru_maxrss / 1024,
        size_bytes=(page if kind.name == "page" else printed).stat().st_size,
    )


def line(cells: int, kind: Kind, cost: Cost) -> str:
    wanted_s = WANTED_S.get(cells, {}).get(kind.name)
    if cost.exit_code:
        verdict = f"exit code {cost.exit_code}"
    elif wanted_s is None:
        verdict = ""
    else:
        verdict = "yes" if cost.cpu_s <= wanted_s and cost.peak_mib <= WANTED_MIB else "NO"
    wanted = f"{wanted_s:.0f} s" if wanted_s else "-"
    return (
        f"{cells:>6}  {kind.name:<9} {cost.cpu_s:>7.2f} s {cost.wall_s:>7.2f} s {wanted:>7} "
        f"{cost.peak_mib:>7.0f} MiB {WANTED_MIB:>5} MiB {cost.size_bytes / 1e6:>8.2f} MB  {verdict}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, nargs="+", default=[24, 1_000, 10_000])
    parser.add_argument("--kinds", nargs="+", choices=[k.name for k in KINDS], default=[k.name for k in KINDS])
    parser.add_argument("--iterations", type=int, default=8, help="measured iterations of every rank")
    parser.add_argument("--keep", type=Path, help="make the stores here, or use those that are here")
    options = parser.parse_args()
    print(" cells  report          CPU      wall  wanted      memory    wanted        size  met")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for cells in options.cells:
            root = folder / f"store-{cells}"
            if not root.exists():
                make_store(root, cells, options.iterations)
            for kind in KINDS:
                if kind.name in options.kinds:
                    print(line(cells, kind, measure(root, kind, folder / f"out-{cells}")), flush=True)


if __name__ == "__main__":
    main()
