"""torch.compile: of the whole model where nothing communicates inside it, else unit by unit."""

from __future__ import annotations

from wirecost.spec import DataParallel, Plan
from wirecost.train.groups import Groups
from wirecost.train.models import Model


def apply_compile(plan: Plan, model: Model, groups: Groups) -> None:
    """To be called before data parallelism wraps the model."""
    if not plan.compile:
        return
    if _communicates_inside(plan, groups):
        for unit in model.units:
            unit.compile()
    else:
        model.compile()


def _communicates_inside(plan: Plan, groups: Groups) -> bool:
    sharded = plan.data_parallel in (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)
    gathers = sharded and groups.data.size > 1 and (plan.overlap or plan.data_parallel is DataParallel.ZERO3)
    return gathers or max(g.size for g in (groups.tensor, groups.context, groups.pipeline)) > 1
