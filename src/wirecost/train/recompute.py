"""Activation recompute: backward computes again what forward did not keep (Chen et al. 2016, arXiv:1604.06174)."""

from __future__ import annotations

import functools

from wirecost.spec import Plan, Recompute
from wirecost.train.models import Model
from wirecost.train.models.blocks import Attend, keep_inputs


def apply_recompute(plan: Plan, model: Model) -> None:
    """`full`: of each unit between the first and the last only the input is kept. `selective`: of attention only
    queries, keys and values are (Korthikanti et al. 2022, section 5), everything else stays.

    Communication inside what is computed again happens again.
    """
    if plan.recompute is Recompute.FULL:
        for unit in list(model.units)[1:-1]:
            unit.forward = functools.partial(keep_inputs, unit.forward)
    elif plan.recompute is Recompute.SELECTIVE:
        for module in model.modules():
            if isinstance(module, Attend):
                # A flag: where units are compiled apart, a function of each module's own would be compiled each.
                module.computed_again = True
