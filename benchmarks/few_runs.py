"""Calibrates on few runs, and predicts runs that the fit did not see.

    python benchmarks/few_runs.py [--draws N] [--only synthetic|measured]

Synthetic runs are predictions of a stack with other properties than the preset's, with 0.5 % noise. Measured runs
are those of results/. 1, 2, 3 and 6 runs are drawn N times. For each number the program prints how far the fitted
runs are from the fit (compute, without exposed communication), and for the runs that were not fitted the mean
error of the iteration time, the share inside the 90 % interval, and half the interval's width in natural
logarithms; beside each the same of the preset that nothing was fitted to. *worst* is the largest difference
between the mean errors of a draw's fit and the preset.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wirecost.breakdown import Source
from wirecost.calibration.inputs.row_machine import link_named
from wirecost.calibration.inputs.runs import Observed
from wirecost.calibration.properties import PROPERTIES, Parts, Values, start_of
from wirecost.calibration.run_rows import Runs
from wirecost.calibration.runs import STACK_KEYS, DeviceFit, fit_runs
from wirecost.costmodel.setup import setup
from wirecost.prediction.predict import predict
from wirecost.spec import GPU, Cluster, DataParallel, Plan, Precision, Stack, Workload, gpu, load_spec, stack_named

RESULTS = Path(__file__).resolve().parents[1] / "results"
NUMBERS = (1, 2, 3, 6)
NOISE = 0.005
"""Standard deviation of log(measured) of synthetic runs."""
GPU_NAME = "H200-SXM-141GB"
Key = tuple[str, str]


@dataclass(frozen=True)
class Cell:
    """A run that is predicted, with the seconds of its iteration."""

    workload: Workload
    plan: Plan
    cluster: Cluster
    ranks: int
    micro_batch: int
    global_batch: int
    seconds: float

    def predict(self, device: GPU, stack: Stack) -> tuple[float, float]:
        """Returns log(predicted / measured), and half the width of the interval as a logarithm."""
        made = setup(
            self.workload, self.plan, self.cluster.model_copy(update={"gpu": device}), stack=stack,
            gpus=self.ranks, micro_batch=self.micro_batch, global_batch=self.global_batch,
        )  # fmt: skip
        found = predict(made)
        assert found.breakdown.interval is not None
        width = math.log(found.breakdown.interval.high_ns * 1e-9 / found.total_s)
        return math.log(found.total_s / self.seconds), width


@dataclass(frozen=True)
class Draw:
    """One calibration: errors of fitted runs and of cells that were not fitted, by the preset and by the fit."""

    fitted: np.ndarray
    fitted_preset: np.ndarray
    cells: np.ndarray
    cells_preset: np.ndarray


def judge(runs: Sequence[Observed], cells: Sequence[Cell], device: GPU, stack: Stack, made: DeviceFit) -> Draw:
    link = link_named("shared-memory")
    before = Runs(runs, Parts(device, stack, link, link, made.shared_cores), made.precision)
    return Draw(
        np.array(made.fit.row_errors),
        before.row_errors({}),
        np.array([cell.predict(made.gpu, made.stack) for cell in cells]),
        np.array([cell.predict(device, stack) for cell in cells]),
    )


def show(name: str, draws: Sequence[Draw]) -> None:
    def errors(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([100 * np.abs(np.expm1(each[:, 0])) for each in arrays])

    def inside(arrays: list[np.ndarray]) -> float:
        return float(np.mean(np.concatenate([100.0 * (np.abs(each[:, 0]) <= each[:, 1]) for each in arrays])))

    of_fit, of_preset = [d.cells for d in draws], [d.cells_preset for d in draws]
    fitted = 100 * np.abs(np.concatenate([d.fitted for d in draws]))
    preset = 100 * np.abs(np.concatenate([d.fitted_preset for d in draws]))
    worst = max(errors([d.cells]).mean() - errors([d.cells_preset]).mean() for d in draws)
    print(
        f"{name:26s} {fitted.mean():6.1f} {fitted.max():6.1f} {preset.mean():6.1f}  {errors(of_fit).mean():6.1f} "
        f"{errors(of_preset).mean():6.1f} {worst:+8.1f} {inside(of_fit):5.0f} {inside(of_preset):5.0f}   "
        f"{np.concatenate(of_fit)[:, 1].mean():5.2f} {np.concatenate(of_preset)[:, 1].mean():5.2f}",
        flush=True,
    )


FITTED_RUNS = (
    ("gpt-350m", 4),
    ("gpt-2-medium", 1),
    ("bert-large", 16),
    ("gpt-1.3b", 2),
    ("gpt-2-large", 4),
    ("gpt-2", 8),
    ("t5-large", 4),
)
UNSEEN = (
    ("gpt-2-xl", 2, "zero3-bf16", 4),
    ("gpt-1.3b", 8, "all-reduce-bf16", 1),
    ("gpt-2", 1, "ddp-bf16", 8),
    ("bert-base", 32, "zero1-bf16", 4),
    ("gpt-2-large", 1, "tp2-bf16", 2),
    ("gpt-3.6b", 1, "zero3-bf16", 8),
)
"""Workload, micro-batch, plan and number of GPUs."""
STRONG: dict[Key, float] = {
    ("gpu", "matrix_efficiency"): 0.6,
    ("stack", "host_forward_s"): 2.0,
    ("stack", "host_backward_s"): 2.0,
}


UNIFORM: dict[Key, float] = {
    ("gpu", "matrix_efficiency"): 1 / 1.6,
    ("stack", "attention_efficiency"): 1 / 1.6,
    ("stack", "hidden_bytes"): 1.6,
    ("stack", "sharded_bytes"): 1.6,
    ("stack", "vocabulary_bytes"): 1.6,
    ("stack", "optimizer_bytes"): 1.6,
}
"""All kernels take 1.6 times as long."""


def some_factors(rng: np.random.Generator) -> dict[Key, float]:
    """Returns factors of three properties, each as likely as its uncertainty says (at most 0.7)."""
    keys: list[Key] = [("gpu", "matrix_efficiency"), *(("stack", key) for key in STACK_KEYS)]
    chosen = [keys[i] for i in rng.choice(len(keys), 3, replace=False)]
    return {key: math.exp(min(PROPERTIES[key].uncertainty, 0.7) * rng.standard_normal()) for key in chosen}


def changed(parts: Parts, factors: Mapping[Key, float]) -> Values:
    values = {}
    for (kind, key), factor in factors.items():
        owner, entry = parts.gpu if kind == "gpu" else parts.stack, PROPERTIES[kind, key]
        values[f"{kind} {owner.name} {key}"] = min(max(start_of(owner, key) * factor, entry.low), entry.high)
    return values


def synthetic_run(
    workload: str, micro_batch: int, parts: Parts, values: Values, names: Sequence[str], rng: np.random.Generator
) -> Observed:
    run = Observed(
        name=f"{workload}, micro-batch {micro_batch}", source=Source.MEASURED,
        workload=load_spec("workload", workload), plan=load_spec("plan", "all-reduce-bf16"),
        micro_batch=micro_batch, global_batch=micro_batch, ranks=1, ranks_per_host=1,
        parts=dict.fromkeys(names, 1.0), iteration_s=1.0,
    )  # fmt: skip
    seconds = Runs([run], parts, Precision.BF16).predict(values)
    noisy = {name: float(seconds[name][0] * np.exp(NOISE * rng.standard_normal())) for name in names}
    return replace(run, parts=noisy, iteration_s=sum(noisy.values()))


def unseen(truth: Parts, cluster: Cluster) -> list[Cell]:
    cells = []
    for model, micro_batch, plan, gpus in UNSEEN:
        its_plan = load_spec("plan", plan)
        batch = micro_batch * gpus // its_plan.model_parallel
        cell = Cell(load_spec("workload", model), its_plan, cluster, gpus, micro_batch, batch, 1.0)
        seconds = math.exp(cell.predict(truth.gpu, truth.stack)[0])
        cells.append(replace(cell, seconds=seconds))
    return cells


def synthetic(draws: int) -> None:
    """Judges synthetic runs of the engine, and traces of them, which hold two times each instead of four."""
    link = link_named("shared-memory")
    parts = Parts(gpu(GPU_NAME), stack_named("engine-cuda"), link, link)
    cluster = load_spec("cluster", "dgx-h200")
    kinds = {"runs": ("forward", "backward", "optimizer", "other"), "traces": ("device", "window")}
    for kind, names in kinds.items():
        for changes in ("strong", "uniform", "random"):
            for number in NUMBERS:
                found = []
                for seed in range(draws):
                    rng = np.random.default_rng(seed)
                    known = {"strong": STRONG, "uniform": UNIFORM}.get(changes)
                    values = changed(parts, known or some_factors(rng))
                    cells = unseen(parts.with_values(values), cluster)
                    chosen = rng.choice(len(FITTED_RUNS), number, replace=False)
                    runs = [synthetic_run(*FITTED_RUNS[int(i)], parts, values, names, rng) for i in chosen]
                    found.append(judge(runs, cells, parts.gpu, parts.stack, fit_runs(runs, gpu_name=GPU_NAME)))
                show(f"{kind}, {changes}, {number}", found)


MEASURED = (
    ("2026-11-28-two-h200-studies", "interconnect", "nvlink"),
    ("2026-11-29-two-h200-studies", "interconnect", "nvlink"),
    ("2026-11-28-four-h200-studies", "zero", "nvlink"),
    ("2026-11-28-two-cores-studies", "interconnect-cpu", "emulated-1g"),
    ("2026-11-29-two-cores-studies", "interconnect-cpu", "emulated-1g"),
)
"""Folder, table, and the network of the runs that are fitted."""


def clusters_of(folder: Path) -> dict[str, Cluster]:
    return {
        path.stem.removeprefix("cluster-"): load_spec("cluster", str(path))
        for path in sorted((folder / "calibration").glob("cluster-*.yaml"))
    }


def measured_run(row: Mapping[str, str], *, on_cpu: bool) -> Observed | None:
    """Returns a cell in which compute is apart from communication, as a run that can be fitted."""
    plan = load_spec("plan", row["plan"])
    if plan.data_parallel is not DataParallel.ALL_REDUCE or plan.model_parallel > 1 or row["ranks"] != "2":
        return None
    ms = {key: float(row[f"{key}_ms"] or 0) for key in ("forward", "backward", "optimizer", "other", "data")}
    ms["other"] += ms.pop("data")
    return Observed(
        name=f"{row['workload']}, micro-batch {row['micro_batch']}", source=Source.MEASURED,
        workload=load_spec("workload", row["workload"]), plan=plan, micro_batch=int(row["micro_batch"]),
        global_batch=int(row["global_batch"]), ranks=2, ranks_per_host=1 if on_cpu else 2,
        parts={key: value * 1e-3 for key, value in ms.items() if value > 0},
        iteration_s=float(row["iteration_ms"]) * 1e-3, on_cpu=on_cpu,
        device="processor" if on_cpu else None, cores=2 if on_cpu else None, machine_cores=2 if on_cpu else None,
    )  # fmt: skip


def measured_cell(row: Mapping[str, str], clusters: Mapping[str, Cluster]) -> Cell | None:
    cluster = clusters.get(row["network"].removesuffix(", 1 per host"))
    ranks = int(row["ranks"])
    if row["status"] != "done" or cluster is None:
        return None
    nodes = max(cluster.nodes, -(-ranks // cluster.gpus_per_node))
    return Cell(
        load_spec("workload", row["workload"]), load_spec("plan", row["plan"]),
        cluster.model_copy(update={"nodes": nodes}), ranks, int(row["micro_batch"]), int(row["global_batch"]),
        float(row["iteration_ms"]) * 1e-3,
    )  # fmt: skip


def measured(draws: int) -> None:
    """Judges runs of results/: some cells of one network are fitted, all cells of other workloads, micro-batches
    and plans predicted. Networks are those of the results' calibrations, in all predictions."""
    for folder, table, network in MEASURED:
        clusters, on_cpu = clusters_of(RESULTS / folder), "cpu" in table
        with (RESULTS / folder / "measured" / f"{table}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        known = [
            (row, run)
            for row in rows
            if row["status"] == "done" and row["network"].removesuffix(", 1 per host") == network
            if (run := measured_run(row, on_cpu=on_cpu)) is not None
        ]
        precision = known[0][1].plan.precision
        stack = stack_named("engine-cpu" if on_cpu else "engine-cuda")
        for number in [n for n in NUMBERS if n <= len(known)]:
            found = []
            for seed in range(draws):
                chosen = np.random.default_rng(seed).choice(len(known), number, replace=False)
                runs = [known[i][1] for i in chosen]
                fitted = {(run.workload.name, run.micro_batch, run.plan.name) for run in runs}
                cells = [
                    cell
                    for row in rows
                    if (row["workload"], int(row["micro_batch"]), row["plan"]) not in fitted
                    if (cell := measured_cell(row, clusters)) is not None
                ]
                made = fit_runs(runs, gpu_name=None if on_cpu else GPU_NAME)
                device = plain_processor(precision) if on_cpu else gpu(GPU_NAME)
                found.append(judge(runs, cells, device, stack, made))
            show(f"{folder[5:10]} {table} ({folder.split('-')[3]}), {number}", found)


def plain_processor(precision: Precision) -> GPU:
    """Returns a processor core as a fit starts from it."""
    from wirecost.calibration.runs import CPU_BPS, CPU_FLOPS

    return GPU.model_validate(
        {
            "name": "cpu-processor", "architecture": "cpu", "memory_bytes": 1 << 34,
            "memory_bandwidth_Bps": CPU_BPS, "peak_flops": {str(precision): CPU_FLOPS},
            "matrix_efficiency": 1.0, "memory_efficiency": 1.0, "source": "where a fit starts",
        }
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--only", choices=["synthetic", "measured"])
    options = parser.parse_args()
    print(f"{'':26s} {'fitted runs, %':^20s}  {'other runs, %':^22s} {'inside, %':^11s}   {'half width':^11s}")
    print(
        f"{'':26s} {'mean':>6s} {'worst':>6s} {'preset':>6s}  {'fit':>6s} {'preset':>6s} {'worst':>8s} "
        f"{'fit':>5s} {'preset':>5s}   {'fit':>5s} {'preset':>5s}"
    )
    if options.only != "measured":
        synthetic(options.draws)
    if options.only != "synthetic":
        measured(options.draws)


if __name__ == "__main__":
    main()
