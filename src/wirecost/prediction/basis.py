"""What a prediction rests on: the provenance of the GPU, the links, the stack and the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wirecost.spec import GradientTraffic, MatrixPrecision, PipelineSchedule, Plan, Provenance
from wirecost.spec.provenance import Sourced

if TYPE_CHECKING:
    from wirecost.costmodel.setup import Setup


@dataclass(frozen=True)
class Basis:
    """The provenance of one part of a prediction.

    Attributes:
        part: `gpu`, `intra_node`, `inter_node`, `stack`, `plan`, or `model` if a part of the model was never
            measured alone.
        name: name of the part.
        provenance: what the figures or formulas of the part rest on.
        detail: what they were fitted to, or where they are from.
    """

    part: str
    name: str
    provenance: Provenance
    detail: str


NAMES = {
    "gpu": "GPU",
    "intra_node": "link inside a node",
    "inter_node": "link between nodes",
    "stack": "stack",
    "plan": "plan",
    "model": "model",
}
"""Names of the parts for people."""


LARGEST_MEASURED_CONTEXT = 4
"""Largest context-parallel degree in the tables of measurements (81 rows with 2 and 4)."""
HARDLY_MEASURED = "not compared with measurements that tell them apart"
NEVER_MEASURED_FORMATS = (MatrixPrecision.FP8_BLOCKWISE,)
NEVER_MEASURED_SCHEDULES = (PipelineSchedule.ZB_H1, PipelineSchedule.ZB_H2, PipelineSchedule.DUALPIPE)


def unmeasured_strategies(plan: Plan) -> list[str]:
    """Returns the strategies of a plan whose formulas were never compared with measurements of jobs."""
    strategies = {
        f"context_parallel {plan.context_parallel}": plan.context_parallel > LARGEST_MEASURED_CONTEXT,
        "context_communication a2a": plan.context_parallel > 1 and plan.context_communication == "a2a",
        f"gradient_traffic {plan.gradient_traffic}": plan.gradient_traffic is not GradientTraffic.NATIVE,
        f"pipeline_schedule {plan.pipeline_schedule}": plan.pipeline_schedule in NEVER_MEASURED_SCHEDULES,
        "hpZ": plan.sharding_group == "hpz",
        "tensor_overlap": bool(plan.tensor_overlap) and plan.tensor_parallel > 1,
        f"matrix_precision {plan.matrix_precision}": plan.matrix_precision in NEVER_MEASURED_FORMATS,
    }
    return [name for name, used in strategies.items() if used]


def unmeasured_parts(setup: Setup) -> list[str]:
    """Returns the parts of a model whose formulas were compared with few measurements, in which other causes of
    errors can't be told apart from them: sliding windows, which runs of GPT-OSS have together with experts and
    attention sinks, and multi-token prediction, which one published run has."""
    workload = setup.workload
    window = workload.sliding_window
    windowed = window is not None and window < workload.sequence_length
    parts = {
        f"sliding_window {window}": windowed and setup.stack.attention.kind == "fused",
        f"multi_token_prediction {workload.multi_token_prediction}": workload.multi_token_prediction > 0,
    }
    return [name for name, used in parts.items() if used]


def basis_of(setup: Setup) -> list[Basis]:
    """Returns the provenance of each part that a prediction rests on. The links are those that the job uses."""
    cluster = setup.cluster
    parts: list[tuple[str, Sourced]] = [("gpu", cluster.accelerator)]
    if cluster.gpus_per_node > 1 and setup.gpus > 1:
        parts.append(("intra_node", cluster.intra_node))
    if setup.gpus > cluster.gpus_per_node:
        parts.append(("inter_node", cluster.inter_node))
    parts.append(("stack", setup.stack))
    basis = [Basis(part, spec.name, spec.provenance, spec.calibration or spec.source) for part, spec in parts]
    unmeasured = unmeasured_strategies(setup.plan)
    if unmeasured:
        detail = f"{', '.join(unmeasured)}: formulas of the literature, never compared with measurements"
        basis.append(Basis("plan", setup.plan.name, Provenance.JUDGEMENT, detail))
    else:
        detail = "its formulas were compared with measured jobs"
        basis.append(Basis("plan", setup.plan.name, Provenance.MEASURED, detail))
    if parts_of_model := unmeasured_parts(setup):
        detail = f"{', '.join(parts_of_model)}: formulas of the literature, {HARDLY_MEASURED}"
        basis.append(Basis("model", setup.workload.name, Provenance.JUDGEMENT, detail))
    return basis


def basis_line(basis: list[Basis]) -> str:
    """Returns the provenance of all parts as one line of text."""
    parts = ", ".join(f"{NAMES[each.part]} {each.name} {each.provenance}" for each in basis)
    return f"Provenance: {parts}."
