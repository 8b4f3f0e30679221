"""Measures speed and error of the cost model and prints them beside its peers' published figures.

    python benchmarks/model.py [REFERENCE]      REFERENCE: folder of comm_fraction_cluster_a.csv, measured/

Peers' errors and speeds: Calculon, llm-analysis, SimuMax and vTrain, run or published on the same tables (theirs
on all rows of a table, ours on the half that this repository's reference data holds).
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from wirecost.calibration.inputs.table import Setting
from wirecost.costmodel.inputs import Layout
from wirecost.costmodel.iteration import iterate, iterate_memory
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.shape import shape_of
from wirecost.prediction.table_validation import validate_table
from wirecost.spec import Precision, load_spec, stack_named

PEERS = {
    # table: (Calculon, llm-analysis at efficiency 0.5, best published), mean absolute error in percent
    "megatron_sc21": ("8.5", "7.3 (all-gather bug bypassed)", "-"),
    "korthikanti2022_tab5": ("-", "-", "-"),
    "vtrain_a100_multi": ("19.7", "17.7", "14.7 (vTrain, GPU profile)"),
    "vtrain_a100_single": ("38.9", "56.8", "8.4 (vTrain, GPU profile)"),
    "mosaicml_llm_foundry": ("can't express", "16-21", "-"),
    "megatron_bridge": ("-", "-", "-"),
}
PEER_SPEED = {"Calculon": 500, "llm-analysis": 3400, "SimuMax": 17}
TARGETS = {
    "megatron_sc21": 4,
    "korthikanti2022_tab5": 4,
    "vtrain_a100_multi": 6,
    "vtrain_a100_single": 4,
    "mosaicml_llm_foundry": 6,
}


def speed(count: int = 8192, repeats: int = 12) -> dict[str, float]:
    """Returns configurations per second of processor time on one core: time and memory of GPT-3 175B on Selene."""
    shape = shape_of(load_spec("workload", "gpt-3-175b"))
    machine = machine_of(load_spec("cluster", "selene"), stack_named("megatron-lm-2021"), Precision.BF16)
    draw = np.random.default_rng(0)

    def pick(*values: float) -> np.ndarray:
        return draw.choice(np.array(values, dtype=float), count)

    full = Layout(
        tensor=pick(1, 2, 4, 8),
        pipeline=pick(1, 2, 4, 8, 16),
        data=pick(1, 2, 4, 8, 16, 32),
        micro_batch=pick(1, 2, 4, 8),
        accumulation=pick(1, 4, 16, 64),
        virtual=pick(1, 2, 3),
        sharding=pick(0, 1, 2, 3),
        bucketed=pick(0, 1),
        sequence_parallel=pick(0, 1),
        recompute=pick(0, 1, 2),
    )
    plain = Layout(
        tensor=full.tensor,
        pipeline=full.pipeline,
        data=full.data,
        micro_batch=full.micro_batch,
        accumulation=full.accumulation,
        virtual=full.virtual,
        recompute=full.recompute,
    )
    per_second = {}
    for name, layout in (("every strategy mixed", full), ("TP x PP x DP x micro-batch", plain)):
        iterate(shape, layout, machine)
        best = float("inf")
        for _ in range(repeats):
            began = time.process_time()
            iterate(shape, layout, machine)
            iterate_memory(shape, layout, machine)
            best = min(best, time.process_time() - began)
        per_second[name] = count / best
    return per_second


def startup(repeats: int = 7) -> tuple[float, float]:
    """Returns the seconds of a whole `wirecost predict` process: median and best of several."""
    command = [
        sys.executable,
        "-m",
        "wirecost",
        "predict",
        "gpt-3-175b",
        "--cluster",
        "selene",
        "--gpus",
        "512",
        "--tp",
        "8",
        "--pp",
        "8",
        "-B",
        "512",
    ]
    times_s = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times_s.append(time.perf_counter() - began)
    return sorted(times_s)[len(times_s) // 2], min(times_s)


def errors(reference: Path) -> None:
    print(
        f"{'table':24s} {'rows':>5s} {'ours':>7s} {'bias':>7s} {'target':>7s} {'90 % int.':>9s}   "
        "peers: Calculon, llm-analysis, best published"
    )
    for table, peers in PEERS.items():
        path = reference / "measured" / f"{table}.csv"
        if not path.exists():
            continue
        result = validate_table(path)
        e = np.array([r.error for r in result.rows if r.error is not None])
        coverage = np.mean([r.low <= r.measured <= r.high for r in result.rows if r.low and r.high and r.measured])
        target = f"{TARGETS[table]} %" if table in TARGETS else "-"
        print(
            f"{table:24s} {len(e):5d} {100 * np.abs(e).mean():5.1f} % {100 * e.mean():+5.1f} % {target:>7s} "
            f"{100 * coverage:7.0f} %   {', '.join(peers)}"
        )
    path = reference / "comm_fraction_cluster_a.csv"
    if path.exists():
        result = validate_table(path, setting=Setting(testbed=load_spec("testbed", "pinnacles-a")))
        e = np.array([r.error for r in result.rows if r.error is not None])
        right = sum((r.predicted is None) == (r.measured is None) for r in result.rows)
        print(
            f"{'comm_fraction_cluster_a':24s} {len(e):5d}   {np.abs(e).mean():.4f} {e.mean():+.4f}    0.02    "
            f"OOM or not: {right} of {len(result.rows)} right; an ad-hoc fit of 12 numbers: 0.010"
        )


def main() -> None:
    print("Configurations a second, one core (processor time):")
    for name, rate in speed().items():
        print(f"  wirecost, {name}: {rate:,.0f}   (floor 500,000, aim 2,000,000)")
    for name, rate in PEER_SPEED.items():
        print(f"  {name}: {rate:,}")
    median, best = startup()
    print(f"One `wirecost predict`, whole process: median {median:.2f} s, best {best:.2f} s (target 0.5)")
    if len(sys.argv) > 1:
        print()
        errors(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
