"""Fits the shipped presets to the reference tables: the command behind every calibrated YAML value.

    python benchmarks/calibrate_presets.py REFERENCE [--only STAGE] [--write] [--folds KIND]

Without --write the values are only printed. The test split: these tables hold about half of what was published,
all of it is used for the fit, and errors on rows that were not fitted come from --folds (random five-fold, and
whole models, tensor and pipeline degrees and micro-batches held out).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from wirecost.calibration.fit import HoldOut, leave_out, random_folds
from wirecost.calibration.inputs.fractions import fraction_rows
from wirecost.calibration.inputs.rows import TableRow, iteration_rows
from wirecost.calibration.inputs.table import Setting, read_table
from wirecost.calibration.presets import set_line, write_presets
from wirecost.calibration.properties import Free, free_preset
from wirecost.calibration.solver import Fitted, solve
from wirecost.calibration.table_rows import FractionRows, IterationRows
from wirecost.spec import load_spec

PRESETS = Path(__file__).resolve().parents[1] / "src" / "wirecost" / "spec" / "presets"
OWN = Path(__file__).resolve().parent / "data"

A100, A40, H100 = "gpu A100-SXM-80GB", "gpu A100-SXM-40GB", "gpu H100-SXM-80GB"


def stack(name: str, *properties: str) -> list[str]:
    return [f"stack {name} {prop}" for prop in properties]


# Megatron's 1F1B waits for transfers between stages, so `pipeline_exposed` is set to 0.6 by judgement: on
# InfiniBand it is too small to tell from the other parts, on a slower network it decides.
UNFUSED = (
    "attention_efficiency",
    "attention_bytes_forward",
    "attention_bytes_backward",
    "hidden_bytes",
    "sharded_bytes",
    "host_forward_s",
    "host_backward_s",
    "vocabulary_bytes",
    "collective_sync_s",
    "straggler",
)
ONCE = (
    "host_collective_s",
    "host_softmax_fallback_s",
    "host_sharpness",
    "vocabulary_efficiency",
    "unaligned_efficiency",
    "host_vocabulary_s",
    "embedding_bytes",
    "optimizer_bytes",
    "iteration_s",
    "gradient_sync_s",
)


@dataclass
class Stage:
    """Tables with the weight of each row and the properties that they determine."""

    name: str
    tables: dict[str, float]
    free: list[str]
    stacks: tuple[str, ...] = ()  # rows of other stacks are left out
    start: dict[str, float] = field(default_factory=dict)
    evaluations: int = 60

    def properties(self) -> list[Free]:
        """Returns the properties, each from where its fit starts."""
        return [free_preset(name, self.start.get(name)) for name in self.free]


STAGES = [
    Stage(
        "torch-compile",
        {"h100_one_gpu": 1},
        [
            f"{H100} matrix_efficiency",
            f"{H100} matrix_traffic",
            *stack(
                "torch-compile",
                "attention_efficiency",
                "hidden_bytes",
                "sharded_bytes",
                "vocabulary_efficiency",
                "vocabulary_bytes",
                "optimizer_bytes",
            ),
        ],
        ("torch-compile",),
    ),
    Stage(
        "megatron-a100",
        {"vtrain_a100_single": 1, "vtrain_a100_multi": 2.5, "korthikanti2022_tab5": 10, "megatron_sc21": 12},
        [
            f"{A100} matrix_efficiency",
            f"{A100} matrix_traffic",
            "link infiniband-hdr efficiency",
            "link infiniband-hdr shared_efficiency",
            *stack("megatron-deepspeed", *UNFUSED, *ONCE),
            *stack("megatron-lm-2021", *UNFUSED),
        ],
        ("megatron-deepspeed", "megatron-lm-2021"),
        {f"{A100} matrix_efficiency": 0.9, "link infiniband-hdr shared_efficiency": 0.3},
        120,
    ),
    Stage(
        "zero3-2021",
        {"megatron_sc21": 1},
        stack("deepspeed-zero3-2021", "shard_messages"),
        ("deepspeed-zero3-2021",),
    ),
    Stage(
        "fsdp-flash",
        {"mosaicml_llm_foundry": 1},
        [
            f"{A40} matrix_efficiency",
            f"{A40} matrix_traffic",
            f"{H100} attention_efficiency",
            f"{H100} power_throttle",
            "link roce-200g efficiency",
            "link infiniband-ndr efficiency",
            *stack(
                "fsdp-flash",
                "matrix_efficiency",
                "attention_efficiency",
                "hidden_bytes",
                "sharded_bytes",
                "host_forward_s",
                "host_backward_s",
                "vocabulary_bytes",
                "vocabulary_efficiency",
                "embedding_bytes",
                "optimizer_bytes",
                "iteration_s",
                "shard_overlap",
                "gradient_sync_s",
                "low_precision_efficiency",
            ),
        ],
        ("fsdp-flash",),
        {"link infiniband-ndr efficiency": 0.8},
        80,
    ),
    Stage(
        "megatron-core",
        {"megatron_bridge": 1},
        [
            "gpu GB200-NVL72 matrix_efficiency",
            "gpu GB300-NVL72 matrix_efficiency",
            *stack(
                "megatron-core",
                "hidden_bytes",
                "sharded_bytes",
                "attention_efficiency",
                "pipeline_exposed",
                "data_parallel_overlap",
                "shard_overlap",
                "tensor_overlap",
                "iteration_s",
                "vocabulary_bytes",
                "straggler",
            ),
        ],
        ("megatron-core",),
        {"stack megatron-core pipeline_exposed": 0.1},
    ),
    # Once more without the GPU's own properties, which the stages between have moved.
    Stage(
        "torch-compile-again",
        {"h100_one_gpu": 1},
        stack(
            "torch-compile",
            "attention_efficiency",
            "hidden_bytes",
            "sharded_bytes",
            "vocabulary_efficiency",
            "vocabulary_bytes",
            "optimizer_bytes",
        ),
        ("torch-compile",),
    ),
]


FRACTIONS = [
    "link pcie4 efficiency",
    "link ipoib-100g efficiency",
    "link tcp-10g efficiency",
    *stack(
        "megatron-lm-v3",
        "host_forward_s",
        "host_backward_s",
        "host_sharpness",
        "host_masked",
        "hidden_bytes",
        "attention_bytes_forward",
        "attention_bytes_backward",
        "iteration_s",
    ),
]
"""Fractions determine only ratios. The preset's rate of InfiniBand EDR sets the scale and isn't fitted here."""


def rows_of(stage: Stage, folder: Path) -> tuple[list[TableRow], np.ndarray, list[str]]:
    rows: list[TableRow] = []
    weights: list[float] = []
    tables: list[str] = []
    for table, weight in stage.tables.items():
        path = OWN / f"{table}.csv"
        read = iteration_rows(read_table(path if path.exists() else folder / "measured" / f"{table}.csv")).rows
        read = [r for r in read if not stage.stacks or r.key.stack in stage.stacks]
        rows += read
        weights += [weight] * len(read)
        tables += [table] * len(read)
    return rows, np.array(weights), tables


def show(fitted: list[Fitted]) -> None:
    for p in fitted:
        within = f"within {100 * p.within:.0f} %" if p.within is not None else p.reason
        print(f"    {p.name:58s} {p.value:.4g}  (was {p.start:.4g}, {within})")


def describe(title: str, errors: np.ndarray, tables: list[str]) -> str:
    parts = []
    for table in dict.fromkeys(tables):
        mask = np.array([t == table for t in tables]) & ~np.isnan(errors)
        if mask.any():
            e = errors[mask]
            parts.append(f"{table} {100 * np.abs(e).mean():.2f} % (bias {100 * e.mean():+.1f}, n {mask.sum()})")
    return f"  {title}: " + "; ".join(parts)


def cluster_a(reference: Path, write: bool) -> None:
    """Fits the interconnect study's fractions: all of them, and those of one workload with the one-node rows.

    The study is doi 10.1109/MM.2024.3360081.
    """
    table = read_table(reference / "comm_fraction_cluster_a.csv")
    setting = Setting(testbed=load_spec("testbed", "pinnacles-a"))
    problem = FractionRows(fraction_rows(table, setting).rows)
    properties = [free_preset(name) for name in FRACTIONS]
    fitted = solve(properties, problem.errors)
    values = {p.name: p.value for p in fitted}
    errors = problem.row_errors(values)
    print(f"cluster-a: {problem.rows} fractions")
    show(fitted)
    print(f"  fitted: mean error {np.abs(errors).mean():.4f}, bias {errors.mean():+.4f}")
    if write:
        text = (
            f"fitted to comm_fraction_cluster_a.csv: {problem.rows} fractions, mean error "
            f"{np.abs(errors).mean():.4f} as fitted"
        )
        determined = {p.name: p.value for p in fitted if p.determined}
        write_presets(determined, PRESETS, {" ".join(name.split()[:2]): text for name in determined})
        return
    free = [p for p, f in zip(properties, fitted, strict=True) if f.determined]
    start = {p.name: p.start for p in properties}
    for workload in sorted({row.parameters["workload"] for row in problem.table}):
        in_fit = [r.parameters["workload"] == workload or r.parameters["gpus"] == "2" for r in problem.table]
        errors = leave_out(problem, free, start, [~np.array(in_fit)])
        assert errors is not None
        print(
            f"  {workload} and one-node rows seen, the others predicted: mean error "
            f"{np.nanmean(np.abs(errors)):.4f}, n {len(in_fit) - sum(in_fit)}"
        )


def folds_of(kind: str, rows: list[TableRow]) -> list[np.ndarray]:
    columns = {"model": "hidden", "tp": "tp", "pp": "pp", "mbs": "mbs"}
    if kind == "random":
        return random_folds(len(rows), 3 if len(rows) > 500 else 5)
    labels = tuple(str(r.parameters[columns[kind]]) for r in rows)
    return HoldOut(labels=labels, column=kind).masks(len(rows)) if len(set(labels)) > 1 else []


def judge(
    stage: Stage, problem: IterationRows, free: list[Free], tables: list[str], kinds: list[str]
) -> dict[str, float]:
    """Prints the errors on rows left out; returns the spread of each stack."""
    start = {p.name: p.start for p in stage.properties()}
    spread: dict[str, float] = {}
    for kind in kinds:
        folds = folds_of(kind, problem.table)
        if not 2 <= len(folds) <= 14:
            continue
        errors = leave_out(problem, free, start, folds)
        assert errors is not None
        print(describe(f"held out by {kind}", errors, tables), flush=True)
        for name in sorted({r.key.stack for r in problem.table}) if kind == "random" else ():
            own = np.array([r.key.stack == name for r in problem.table]) & ~np.isnan(errors)
            if own.sum() >= 10:
                spread[name] = float(np.quantile(np.abs(np.log1p(errors[own])), 0.9))
                print(f"    90 % of {name}'s |log error| below {spread[name]:.3f}")
    return spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--folds", choices=["random", "model", "tp", "pp", "mbs", "all"])
    options = parser.parse_args()
    if options.only in (None, "cluster-a"):
        cluster_a(options.reference, options.write)
    for stage in STAGES:
        if options.only and stage.name != options.only:
            continue
        began = time.perf_counter()
        rows, weights, tables = rows_of(stage, options.reference)
        problem = IterationRows(rows, weights)
        properties = stage.properties()
        fitted = solve(properties, problem.errors, evaluations=stage.evaluations)
        print(f"{stage.name}: {len(rows)} rows, {len(stage.free)} properties, {time.perf_counter() - began:.0f} s")
        show(fitted)
        errors = problem.row_errors({p.name: p.value for p in fitted})
        print(describe("fitted", errors, tables))
        free = [p for p, f in zip(properties, fitted, strict=True) if f.determined]
        kinds = ["random", "model", "tp", "pp", "mbs"] if options.folds == "all" else [options.folds]
        spread = judge(stage, problem, free, tables, kinds) if options.folds else {}
        if options.write:
            determined = {p.name: p.value for p in fitted if p.determined}
            text = f"{', '.join(stage.tables)}: {len(rows)} rows, mean error {100 * np.abs(errors).mean():.1f} %"
            owners = {" ".join(name.split()[:2]): f"fitted to {text} as fitted" for name in determined}
            paths = write_presets(determined, PRESETS, owners)
            for name, value in spread.items():
                set_line(PRESETS / "stacks" / f"{name}.yaml", "spread", f"{value:.3f}")
            print("  wrote " + ", ".join(str(p.relative_to(PRESETS)) for p in paths))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
