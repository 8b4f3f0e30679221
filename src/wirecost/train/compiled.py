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
    overlaps = plan.overlap and plan.data_parallel is not DataParallel.ALL_REDUCE
    during = groups.data.size > 1 and (overlaps or plan.data_parallel is DataParallel.ZERO3)
    return during or max(g.size for g in (groups.tensor, groups.context, groups.pipeline)) > 1
