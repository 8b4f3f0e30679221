"""Applies torch.compile to the whole model, or to each unit if the model communicates inside."""

from __future__ import annotations

from wirecost.spec import DataParallel, Plan
from wirecost.train.groups import Groups
from wirecost.train.models import Model


def apply_compile(plan: Plan, model: Model, groups: Groups) -> None:
    """Compiles a model in place if the plan says so. It must be called before data parallelism wraps the model."""
    if not plan.compile:
        return
    if _communicates_inside(plan, groups):
        for unit in model.units:
            unit.compile()
    else:
        model.compile()


def _communicates_inside(plan: Plan, groups: Groups) -> bool:
    """Returns whether forward or backward of the model communicates."""
    overlaps = plan.overlap and plan.data_parallel is not DataParallel.ALL_REDUCE
    during = groups.data.size > 1 and (overlaps or plan.data_parallel is DataParallel.ZERO3)
    return during or max(g.size for g in (groups.tensor, groups.context, groups.pipeline)) > 1
