"""Activation recompute: backward computes again what forward did not keep (Chen et al. 2016, arXiv:1604.06174)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from wirecost.spec import Plan, Recompute
from wirecost.train.models import Model
from wirecost.train.models.blocks import Attend


def apply_recompute(plan: Plan, model: Model) -> None:
    """`full`: of each unit between the first and the last only the input is kept. `selective`: of attention only
    queries, keys and values are (Korthikanti et al. 2022, section 5), everything else stays.

    Communication inside what is computed again happens again.
    """
    if plan.recompute is Recompute.FULL:
        again: list[nn.Module] = list(model.units)[1:-1]
    elif plan.recompute is Recompute.SELECTIVE:
        again = [m for m in model.modules() if isinstance(m, Attend)]
    else:
        return
    for module in again:
        module.forward = functools.partial(_kept_inputs, module.forward)


def _kept_inputs(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # No unit draws random numbers: there is no state of a generator to keep.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
