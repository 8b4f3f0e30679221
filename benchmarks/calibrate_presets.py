"""Fits the shipped presets to the reference tables: the command behind every calibrated YAML value.

    python benchmarks/calibrate_presets.py REFERENCE [--only sources|cluster-a] [--write]

All tables of iteration times are fitted together (`wirecost.calibration.hierarchy`), and the interconnect study's
communication fractions by themselves. Without --write the values are only printed. Errors on sources that were not
fitted come from benchmarks/leave_one_out.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from leave_one_out import fitted_rows, read_sources

from wirecost.calibration.fit import leave_out
from wirecost.calibration.hierarchy import Sources, fit_sources, predict, refined, values_of
from wirecost.calibration.inputs.fractions import fraction_rows
from wirecost.calibration.inputs.rows import TableRow
from wirecost.calibration.inputs.table import Setting, read_table
from wirecost.calibration.presets import set_line, write_presets
from wirecost.calibration.properties import free_preset
from wirecost.calibration.solver import Fitted, solve
from wirecost.calibration.table_rows import FractionRows
from wirecost.prediction.interval import MEASURED_STACK, UNMEASURED_STACK
from wirecost.spec import gpu, load_spec, stack_named
from wirecost.spec.presets import KINDS, names

PRESETS = Path(__file__).resolve().parents[1] / "src" / "wirecost" / "spec" / "presets"


def stack(name: str, *properties: str) -> list[str]:
    return [f"stack {name} {prop}" for prop in properties]


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


def show(fitted: list[Fitted]) -> None:
    for p in fitted:
        within = f"within {100 * p.within:.0f} %" if p.within is not None else p.reason
        print(f"    {p.name:58s} {p.value:.4g}  (was {p.start:.4g}, {within})")


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


NOT_FITTED = ("engine-cpu", "engine-cuda", "megatron-lm-v3")
"""Stacks that calibrations of runs, or communication fractions, determine."""
NOT_WRITTEN = ("infiniband-edr",)
"""Links whose presets set the scale of the interconnect study's fractions."""
SAME_SILICON = {
    "H100-SXM-96GB": "H100-SXM-80GB",
    "GH200-96GB": "H100-SXM-80GB",
    "H800-SXM-80GB": "H100-SXM-80GB",
    "A800-SXM-80GB": "A100-SXM-80GB",
}
FEWEST_ROWS = 3
REFINED = {
    "megatron-deepspeed": ("vtrain_a100_single", "vtrain_a100_multi"),
    "megatron-lm-2021": ("korthikanti2022_tab5", "megatron_sc21"),
}
"""Stacks that are fitted once more to the tables of their authors' own runs, which other clusters' tables scatter
around."""


def sources_fitted(reference: Path, write: bool) -> None:
    """Fits all tables of iteration times together, and writes the presets of stacks, GPUs and links."""
    sources = read_sources(reference)
    posterior = fit_sources(sources, fitted_rows(sources))
    for name, tables in REFINED.items():
        posterior = refined(sources, posterior, name, np.isin(sources.labels, tables))
    errors, _ = predict(sources, posterior, np.ones(len(sources.rows), dtype=bool))
    for table in np.unique(sources.labels):
        own = np.expm1(errors[sources.labels == table])
        print(
            f"  {table:24s} {len(own):4d} rows, {100 * np.abs(own).mean():5.1f} %, bias {100 * own.mean():+5.1f} %"
        )
    values: dict[str, float] = {}
    for name in names("stack"):
        if name not in NOT_FITTED:
            owner = ("stack", name, stack_named(name).attention.kind)
            values |= values_of(posterior.levels, posterior.x, [owner])
    used = {row.key.gpu for row in sources.rows}
    for name in used:
        values |= values_of(posterior.levels, posterior.x, [("gpu", name, gpu(name).architecture)])
    for name, relative in SAME_SILICON.items():
        own = values_of(posterior.levels, posterior.x, [("gpu", relative, gpu(relative).architecture)])
        values |= {key.replace(relative, name): value for key, value in own.items()}
    crossed = {r.key.inter for r in sources.rows if float(r.layout.world) > r.key.gpus_per_node}
    for name in sorted(crossed - set(NOT_WRITTEN)):
        values |= values_of(posterior.levels, posterior.x, [("link", name, "inter")])
    if not write:
        for name, value in sorted(values.items()):
            print(f"    {name:58s} {value:.4g}")
        return
    write_presets(values, PRESETS)
    for kind, key in (("stack", "stack"), ("gpu", "gpu"), ("link", "inter")):
        for name in sorted({name.split()[1] for name in values if name.startswith(f"{kind} ")}):
            rows = [i for i, row in enumerate(sources.rows) if getattr(row.key, key) == name]
            describe(kind, name, rows, sources, errors)


def describe(kind: str, name: str, rows: list[int], sources: Sources, errors: np.ndarray) -> None:
    """Writes what a preset's figures rest on."""
    path = PRESETS / KINDS[kind] / f"{name}.yaml"
    if len(rows) < FEWEST_ROWS:
        relative = SAME_SILICON.get(name)
        text = (
            f"efficiencies of {relative}, which is the same silicon"
            if relative
            else "the mean of the fitted stacks"
        )
        set_line(path, "provenance", "derived")
        set_line(path, "calibration", f'"{text}"')
        if kind == "stack":
            set_line(path, "spread", f"{UNMEASURED_STACK}")
        return
    tables = ", ".join(str(label) for label in np.unique(sources.labels[rows]))
    error = 100 * np.abs(np.expm1(errors[rows])).mean()
    text = f"fitted with all tables together to {tables}: {len(rows)} rows, mean error {error:.1f} % as fitted"
    set_line(path, "provenance", "measured")
    set_line(path, "calibration", f'"{text}"')
    if kind == "stack":
        set_line(path, "spread", f"{MEASURED_STACK}")
        set_line(path, "calibrated_range", ranges_of([sources.rows[i] for i in rows]))


def ranges_of(rows: list[TableRow]) -> str:
    """Returns the YAML of the smallest and largest value of each dimension of rows."""
    values = {
        "gpus": [float(r.layout.world) for r in rows],
        "hidden": [float(r.shape.hidden) for r in rows],
        "layers": [float(r.shape.layers) for r in rows],
        "sequence_length": [float(r.shape.sequence) for r in rows],
        "micro_batch": [float(r.layout.micro_batch) for r in rows],
        "tensor_parallel": [float(r.layout.tensor) for r in rows],
        "pipeline_parallel": [float(r.layout.pipeline) for r in rows],
    }
    pairs = ", ".join(f"{key}: [{min(v):.0f}, {max(v):.0f}]" for key, v in values.items())
    return "{" + pairs + "}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--only", choices=["cluster-a", "sources"])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.only in (None, "sources"):
        sources_fitted(options.reference, options.write)
    if options.only in (None, "cluster-a"):
        cluster_a(options.reference, options.write)


if __name__ == "__main__":
    main()
