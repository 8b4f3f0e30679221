"""What the engine can't run, said before anything is started."""

from __future__ import annotations

from wirecost.spec import DataParallel, GradientTraffic, Plan, Workload
from wirecost.train.parallel.registry import STRATEGIES


def unsupported(plan: Plan) -> str | None:
    """Why the engine can't run a plan with any workload, or None."""
    if plan.data_parallel not in STRATEGIES:
        return (
            f"plan '{plan.name}': the engine runs data_parallel {' or '.join(sorted(STRATEGIES))}, "
            f"not {plan.data_parallel}"
        )
    for key in ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "virtual_stages"):
        if getattr(plan, key) != 1:
            return f"plan '{plan.name}': the engine runs {key} 1, not {getattr(plan, key)}"
    if plan.sequence_parallel or plan.recompute != "none":
        return f"plan '{plan.name}': the engine runs no sequence parallelism or recompute"
    if plan.precision == "fp16":
        return f"plan '{plan.name}': the engine runs precision fp32 or bf16, not fp16"
    if plan.compile:
        return f"plan '{plan.name}': the engine runs no torch.compile"
    return _data_parallel(plan)


SHARDED = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)


def _data_parallel(plan: Plan) -> str | None:
    if plan.sharding_group == "node" and plan.data_parallel not in SHARDED:
        return (
            f"plan '{plan.name}': sharding_group node needs something to shard: data_parallel "
            f"{', '.join(SHARDED)}, not {plan.data_parallel}"
        )
    summed_by_all_reduce = (GradientTraffic.INT8, GradientTraffic.POWERSGD)
    if plan.gradient_traffic in summed_by_all_reduce and plan.data_parallel in SHARDED:
        return (
            f"plan '{plan.name}': {plan.data_parallel} reduce-scatters gradients, in fp16 or bf16 but not as "
            f"{plan.gradient_traffic}; use data_parallel all_reduce or ddp with it"
        )
    return None


def mismatch(workload: Workload, plan: Plan) -> str | None:
    """Why the engine can't run a workload with a plan, or None; both can be run by themselves."""
    return None
