"""What a prediction rests on: the provenance of the GPU, the links, the stack and the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wirecost.spec import GradientTraffic, PipelineSchedule, Plan, Provenance
from wirecost.spec.provenance import Sourced

if TYPE_CHECKING:
    from wirecost.costmodel.setup import Setup


@dataclass(frozen=True)
class Basis:
    """The provenance of one part of a prediction.

    Attributes:
        part: `gpu`, `intra_node`, `inter_node`, `stack` or `plan`.
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
}
"""Names of the parts for people."""


LARGEST_MEASURED_CONTEXT = 4
"""Largest context-parallel degree in the tables of measurements (81 rows with 2 and 4)."""
NEVER_MEASURED_SCHEDULES = (PipelineSchedule.ZB_H1, PipelineSchedule.ZB_H2, PipelineSchedule.DUALPIPE)


def unmeasured_strategies(plan: Plan) -> list[str]:
    """Returns the strategies of a plan whose formulas were never compared with measurements of jobs."""
    strategies = {
        f"context_parallel {plan.context_parallel}": plan.context_parallel > LARGEST_MEASURED_CONTEXT,
        "context_communication a2a": plan.context_parallel > 1 and plan.context_communication == "a2a",
        f"gradient_traffic {plan.gradient_traffic}": plan.gradient_traffic is not GradientTraffic.NATIVE,
        f"pipeline_schedule {plan.pipeline_schedule}": plan.pipeline_schedule in NEVER_MEASURED_SCHEDULES,
        "hpZ": plan.sharding_group == "hpz",
        "LoRA": plan.lora_rank is not None,
    }
    return [name for name, used in strategies.items() if used]


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
        return [*basis, Basis("plan", setup.plan.name, Provenance.JUDGEMENT, detail)]
    detail = "its formulas were compared with measured jobs"
    return [*basis, Basis("plan", setup.plan.name, Provenance.MEASURED, detail)]


def basis_line(basis: list[Basis]) -> str:
    """Returns the provenance of all parts as one line of text."""
    parts = ", ".join(f"{NAMES[each.part]} {each.name} {each.provenance}" for each in basis)
    return f"Provenance: {parts}."
