"""Which strategy a plan names."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from wirecost.errors import SpecError
from wirecost.spec import DataParallel, Plan
from wirecost.train.parallel.all_reduce import FlatAllReduce
from wirecost.train.parallel.base import GradientSync
from wirecost.train.parallel.ddp import OverlappedDDP
from wirecost.train.recorder import Recorder

STRATEGIES: dict[DataParallel, Callable[[nn.Module, Recorder], GradientSync]] = {
    DataParallel.ALL_REDUCE: FlatAllReduce,
    DataParallel.DDP: OverlappedDDP,
}


def apply_data_parallel(plan: Plan, model: nn.Module, recorder: Recorder) -> GradientSync:
    """Applies a plan's data parallelism to a model.

    Raises:
        SpecError: for a plan that the engine does not run.
    """
    if reason := unsupported(plan):
        raise SpecError(reason)
    return STRATEGIES[plan.data_parallel](model, recorder)


def unsupported(plan: Plan) -> str | None:
    """Why the engine can't run a plan, or None."""
    if plan.data_parallel not in STRATEGIES:
        return (
            f"plan '{plan.name}': the engine runs data_parallel {' or '.join(sorted(STRATEGIES))}, "
            f"not {plan.data_parallel}"
        )
    for key in ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "virtual_stages"):
        if getattr(plan, key) != 1:
            return f"plan '{plan.name}': the engine runs {key} 1, not {getattr(plan, key)}"
    if plan.sequence_parallel or plan.recompute != "none" or plan.sharding_group != "all":
        return f"plan '{plan.name}': the engine runs no sequence parallelism, recompute or node sharding"
    if plan.precision == "fp16":
        return f"plan '{plan.name}': the engine runs precision fp32 or bf16, not fp16"
    return None
