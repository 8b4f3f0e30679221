"""Checks the stated intervals on sources left out of the fits: repeats the fits without one source.

    python benchmarks/held_out_sources.py REFERENCE

Each case leaves a whole source (a paper's or a project's measurements on its cluster) out of the fit and predicts
it, with the interval that `wirecost.prediction.interval` gives such a source: the stack's spread, and what a GPU
and a network add that the fit did not see. The fits start from another stack's values and the defaults.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from calibrate_presets import OWN, STAGES, UNFUSED

from wirecost.calibration.inputs.rows import TableRow, iteration_rows
from wirecost.calibration.inputs.table import read_table
from wirecost.calibration.properties import Values, free_preset
from wirecost.calibration.solver import solve
from wirecost.calibration.table_rows import IterationRows
from wirecost.prediction.interval import GPU_WIDTHS, NETWORK_WIDTHS, WIDEST
from wirecost.spec import Provenance, gpu, stack_named

A100 = "gpu A100-SXM-80GB"
UNFITTED_GPU = {"matrix_efficiency": 0.75, "matrix_traffic": 0.5}
UNFITTED_LINK = {"efficiency": 0.8, "shared_efficiency": 0.6}
SIBLINGS = (("A100-SXM-40GB", "A100-SXM-80GB"), ("GB200-NVL72", "GB300-NVL72"))
"""Measured GPUs with the same silicon."""
WIDTHS = {
    "gpu": GPU_WIDTHS[Provenance.DATASHEET],
    "sibling": GPU_WIDTHS[Provenance.DERIVED],
    "network": NETWORK_WIDTHS[Provenance.DATASHEET],
}


@dataclass
class Case:
    """One case: `held_out` is predicted under `stack`, after a fit of `free` to `fitted`.

    Without `fitted` rows the stack is used as it is. `unfitted` names what else the fit did not see: gpu, network,
    or sibling, a GPU whose efficiencies are those of a sibling.
    """

    name: str
    held_out: Sequence[TableRow]
    stack: str
    fitted: Sequence[TableRow] = ()
    free: Sequence[str] = ()
    start: Mapping[str, float] = field(default_factory=dict)
    unfitted: tuple[str, ...] = ()


@dataclass
class Judged:
    """Log errors of a case, with its stated half width."""

    case: Case
    errors: np.ndarray
    spread: float

    @property
    def coverage(self) -> float:
        return float(np.mean(np.abs(self.errors) <= self.spread))


def under(rows: Sequence[TableRow], stack: str) -> list[TableRow]:
    return [
        replace(row, key=replace(row.key, stack=stack), parts=replace(row.parts, stack=stack_named(stack)))
        for row in rows
    ]


def defaults(rows: Sequence[TableRow]) -> dict[str, float]:
    """Returns the rows' GPUs and networks with default values instead of fitted ones."""
    values = {f"gpu {row.key.gpu} {p}": value for row in rows for p, value in UNFITTED_GPU.items()}
    for row in rows:
        if row.layout.world > row.key.gpus_per_node:
            values |= {f"link {row.key.inter} {p}": value for p, value in UNFITTED_LINK.items()}
    return values


def judge(case: Case) -> Judged:
    values: Values = dict(case.start)
    if case.fitted:
        free = [free_preset(name, case.start.get(name)) for name in case.free]
        values |= {p.name: p.value for p in solve(free, IterationRows(case.fitted).errors, evaluations=40)}
    problem = IterationRows(under(case.held_out, case.stack))
    errors = np.log(problem.predict(values) / problem.measured)
    widths = [stack_named(case.stack).accuracy.spread]
    widths += [WIDTHS[name] for name in case.unfitted]
    return Judged(case, errors, min(math.hypot(*widths), WIDEST))


def cases(reference: Path) -> list[Case]:
    """Returns the cases: first each source held out of the fit of those that share its stack.

    Then every source is predicted under the generic stack, which was fitted to none of them.
    """

    def table(name: str) -> list[TableRow]:
        own = OWN / f"{name}.csv"
        path = own if own.exists() else reference / "measured" / f"{name}.csv"
        return iteration_rows(read_table(path)).rows

    stages = {stage.name: stage for stage in STAGES}
    single, multi = table("vtrain_a100_single"), table("vtrain_a100_multi")
    sc21 = [row for row in table("megatron_sc21") if row.key.stack == "megatron-lm-2021"]
    korthikanti, mosaic = table("korthikanti2022_tab5"), table("mosaicml_llm_foundry")
    bridge, own = table("megatron_bridge"), table("h100_one_gpu")
    megatron = stages["megatron-a100"].free
    lm = [name for name in megatron if "megatron-lm-2021" in name]
    deepspeed = [name for name in megatron if "megatron-lm-2021" not in name]
    other = {f"stack megatron-lm-2021 {p}": float(stack_named("megatron-deepspeed").value(p)) for p in UNFUSED}
    both, mds = ("gpu", "network"), "megatron-deepspeed"
    begin = defaults(multi) | defaults(single)
    listed = [
        Case("Korthikanti, stack from SC'21", korthikanti, "megatron-lm-2021", sc21, lm, other),
        Case("SC'21, stack from Korthikanti", sc21, "megatron-lm-2021", korthikanti, lm, other),
        Case("vTrain multi-node, stack from both", multi, "megatron-lm-2021", sc21 + korthikanti, lm, other),
        Case("vTrain multi-node, all from single-node", multi, mds, single, deepspeed, begin, both),
        Case("SC'21, all from vTrain", sc21, mds, single + multi, deepspeed, begin, both),
        Case("Korthikanti, all from vTrain", korthikanti, mds, single + multi, deepspeed, begin, both),
    ]  # fmt: skip
    for name, rows, stage in (("MosaicML", mosaic, "fsdp-flash"), ("Megatron-Bridge", bridge, "megatron-core")):
        for device in sorted({row.key.gpu for row in rows}):
            held_out = [row for row in rows if row.key.gpu == device]
            fitted = [row for row in rows if row.key.gpu != device]
            links = {row.key.inter for row in held_out} - {row.key.inter for row in fitted}
            free = [p for p in stages[stage].free if p.split()[1] not in {device, *links}]
            start = dict(stages[stage].start) | defaults(held_out)
            start = {p: v for p, v in start.items() if not p.startswith("link") or p.split()[1] in links}
            unfitted = both if links else ("gpu",)
            listed.append(
                Case(f"{name} on {device}, its other GPUs", held_out, stage, fitted, free, start, unfitted)
            )
    for pair in SIBLINGS:
        for device, sibling in (pair, pair[::-1]):
            rows = [row for row in mosaic + bridge if row.key.gpu == device]
            start = {f"gpu {device} {key}": float(getattr(gpu(sibling), key)) for key in UNFITTED_GPU}
            name, stack = f"{device}, efficiencies of {sibling}", rows[0].key.stack
            listed.append(Case(name, rows, stack, start=start, unfitted=("sibling",)))
    everyone = {
        "vTrain single-node": single, "vTrain multi-node": multi, "SC'21": sc21, "Korthikanti": korthikanti,
        "MosaicML": mosaic, "Megatron-Bridge": bridge, "one H100": own,
    }  # fmt: skip
    for name, rows in everyone.items():
        crosses = any(row.layout.world > row.key.gpus_per_node for row in rows)
        listed.append(
            Case(
                f"{name}, stack unknown",
                rows,
                "generic",
                start=defaults(rows),
                unfitted=both if crosses else ("gpu",),
            )
        )
    modern = (("MosaicML", mosaic), ("Megatron-Bridge", bridge))
    for name, rows in modern:
        listed.append(Case(f"{name}, stack torchtitan", rows, "torchtitan", start=defaults(rows), unfitted=both))
    return listed


def show(judged: Sequence[Judged]) -> None:
    head = ("rows", "error", "bias", "stated", "held")
    print(f"{'source that the fit did not see':44s} " + " ".join(f"{h:>8s}" for h in head))
    for result in judged:
        e = np.expm1(result.errors)
        print(
            f"{result.case.name:44s} {len(e):8d} {100 * np.abs(e).mean():6.1f} % {100 * e.mean():+6.1f} % "
            f"x{np.exp(result.spread):7.2f} {100 * result.coverage:6.0f} %"
        )
    coverage = [result.coverage for result in judged]
    print(f"held, each source counting once: {100 * np.mean(coverage):.0f} % (stated: 90 %)")


if __name__ == "__main__":
    show([judge(case) for case in cases(Path(sys.argv[1]))])
