"""Fits the shipped presets to the reference tables again: the one command behind every calibrated YAML value.

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

from wirecost.model.calibrate import Fit, Problem, fit, grouped_folds, random_folds
from wirecost.model.calibrate_fractions import fit_fractions, machine_with_fractions
from wirecost.model.rows import Configuration
from wirecost.model.store import set_line, write_presets
from wirecost.model.study_table import fraction_row, predict_fraction
from wirecost.model.validate import configurations, read_table

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
    """Tables with the weight of each row, and the properties that they determine."""

    name: str
    tables: dict[str, float]
    free: list[str]
    stacks: tuple[str, ...] = ()  # rows of other stacks are left out
    start: dict[str, float] = field(default_factory=dict)
    evaluations: int = 60
    pull: float = 0.02


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
        60,
        0.05,
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


def rows_of(stage: Stage, folder: Path) -> tuple[list[Configuration], np.ndarray, list[str]]:
    rows: list[Configuration] = []
    weights: list[float] = []
    tables: list[str] = []
    for table, weight in stage.tables.items():
        path = OWN / f"{table}.csv"
        found, _ = configurations(read_table(path if path.exists() else folder / "measured" / f"{table}.csv"))
        found = [r for r in found if not stage.stacks or r.key.stack in stage.stacks]
        rows += found
        weights += [weight] * len(found)
        tables += [table] * len(found)
    return rows, np.array(weights), tables


def run(
    stage: Stage, rows: list[Configuration], weights: np.ndarray, keep: np.ndarray | None = None
) -> tuple[Fit, Problem]:
    """Fits; rows that leave the micro-batch open are chosen again under the fitted values, and fitted once
    more."""
    problem = Problem(rows)
    part = problem if keep is None else problem.subset(keep)
    found = fit(
        part,
        stage.free,
        weights=weights if keep is None else weights[keep],
        start=stage.start,
        evaluations=stage.evaluations if keep is None else stage.evaluations // 2,
        pull=stage.pull,
    )
    return found, problem


def errors_of(problem: Problem, values: dict[str, float]) -> np.ndarray:
    return problem.predict(values) / problem.measured - 1


def describe(title: str, errors: np.ndarray, tables: list[str]) -> str:
    parts = []
    for table in dict.fromkeys(tables):
        mask = np.array([t == table for t in tables]) & ~np.isnan(errors)
        if mask.any():
            e = errors[mask]
            parts.append(f"{table} {100 * np.abs(e).mean():.2f} % (bias {100 * e.mean():+.1f}, n {mask.sum()})")
    return f"  {title}: " + "; ".join(parts)


def held_out(stage: Stage, rows: list[Configuration], weights: np.ndarray, folds: list[np.ndarray]) -> np.ndarray:
    """Errors of each row under a fit that did not see it."""
    errors = np.full(len(rows), np.nan)
    for mask in folds:
        if mask.all() or not mask.any():
            continue
        found, problem = run(stage, rows, weights, ~mask)
        errors[mask] = errors_of(problem.subset(mask), found.values)
    return errors


def cluster_a(reference: Path, write: bool) -> None:
    """The interconnect study's fractions: fitted on all, and on one workload with the one-node rows."""
    table = read_table(reference / "comm_fraction_cluster_a.csv")
    found = fit_fractions(table)
    print(f"cluster-a: {found.rows} fractions")
    for name, value in found.values.items():
        print(f"    {name:58s} {value:.4g}  (was {found.start[name]:.4g})")
    print(f"  fitted: mean error {found.mape:.4f}, bias {found.bias:+.4f}")
    if write:
        said = (
            f"fitted to comm_fraction_cluster_a.csv: {found.rows} fractions, mean error {found.mape:.4f} as fitted"
        )
        write_presets(found.values, PRESETS, {" ".join(name.split()[:2]): said for name in found.values})
        return
    for workload in sorted({row["workload"] for row in table if row["workload"]}):
        seen = [r for r in table if r["workload"] == workload or r["gpus"] == "2"]
        values = fit_fractions(seen).values
        errors = []
        for index, row in enumerate(table):
            one = fraction_row(row, index)
            if row in seen or one.measured is None:
                continue
            value = predict_fraction(one, machine_with_fractions(one, values))
            errors.append(abs(value - one.measured) if value is not None else 1.0)
        print(
            f"  {workload} and one-node rows seen, the others predicted: mean error "
            f"{np.mean(errors):.4f}, n {len(errors)}"
        )


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
        found, problem = run(stage, rows, weights)
        print(f"{stage.name}: {len(rows)} rows, {len(stage.free)} properties, {time.perf_counter() - began:.0f} s")
        for name, value in found.values.items():
            print(f"    {name:58s} {value:.4g}  (was {found.start[name]:.4g})")
        print(describe("fitted", errors_of(problem, found.values), tables))
        spread = {}
        if options.folds:
            columns = {"model": "hidden", "tp": "tp", "pp": "pp", "mbs": "mbs"}
            kinds = ["random", *columns] if options.folds == "all" else [options.folds]
            for how in kinds:
                if how == "random":
                    folds = random_folds(len(rows), 3 if len(rows) > 500 else 5)
                else:
                    folds = grouped_folds([r.parameters[columns[how]] for r in rows])
                if not 2 <= len(folds) <= 14:
                    continue
                errors = held_out(stage, rows, weights, folds)
                print(describe(f"held out by {how}", errors, tables), flush=True)
                if how == "random":
                    for name in sorted({r.key.stack for r in rows}):
                        mine = np.array([r.key.stack == name for r in rows]) & ~np.isnan(errors)
                        if mine.sum() >= 10:
                            spread[name] = float(np.quantile(np.abs(np.log1p(errors[mine])), 0.9))
                            print(f"    90 % of {name}'s |log error| below {spread[name]:.3f}")
        if options.write:
            said = f"{', '.join(stage.tables)}: {len(rows)} rows, mean error {100 * found.mape:.1f} % as fitted"
            owners = {" ".join(name.split()[:2]): f"fitted to {said}" for name in stage.free}
            paths = write_presets(found.values, PRESETS, owners)
            for name, value in spread.items():
                set_line(PRESETS / "stacks" / f"{name}.yaml", "spread", f"{value:.3f}")
            print("  wrote " + ", ".join(str(p.relative_to(PRESETS)) for p in paths))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
