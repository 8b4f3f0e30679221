"""Activation recomputation: backward recomputes what forward didn't keep (Chen et al. 2016, arXiv:1604.06174)."""

from __future__ import annotations

import functools

from wirecost.spec import Plan, Recompute
from wirecost.train.models import Model
from wirecost.train.models.blocks import Attend, keep_inputs


def apply_recompute(plan: Plan, model: Model) -> None:
    """Makes a model recompute activations in place.

    With `full`, only the input of each unit between the first and the last is kept. With `selective`, attention
    keeps only queries, keys and values, and everything else is kept (Korthikanti et al. 2022, section 5).
    Communication inside recomputed parts is repeated.
    """
    if plan.recompute is Recompute.FULL:
        for unit in list(model.units)[1:-1]:
            unit.forward = functools.partial(keep_inputs, unit.forward)
    elif plan.recompute is Recompute.SELECTIVE:
        for module in model.modules():
            if isinstance(module, Attend):
                # This is a flag, because torch.compile would compile a function of each module separately.
                module.recomputed = True
