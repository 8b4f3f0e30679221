"""Applies the data-parallel strategy that a plan names."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from wirecost.spec import DataParallel, GradientTraffic, Plan
from wirecost.train.groups import Groups
from wirecost.train.parallel.all_reduce import BucketedAllReduce, FlatAllReduce
from wirecost.train.parallel.alone import Alone
from wirecost.train.parallel.base import DataParallelStrategy
from wirecost.train.parallel.ddp import OverlappedDDP
from wirecost.train.parallel.expert_data import ExpertStrategies, Subset, is_expert
from wirecost.train.parallel.zero1 import Zero1
from wirecost.train.parallel.zero2 import Zero2
from wirecost.train.recorder import Recorder

STRATEGIES: dict[DataParallel, Callable[[nn.Module, Plan, Groups, Recorder], DataParallelStrategy]] = {
    DataParallel.ALL_REDUCE: FlatAllReduce,
    DataParallel.DDP: OverlappedDDP,
    DataParallel.ZERO1: Zero1,
    DataParallel.ZERO2: Zero2,
}
"""All strategies except ZeRO-3. Its import of FSDP2 takes a second, which ranks of other plans don't need."""


def holds_masters(plan: Plan, groups: Groups) -> bool:
    """Returns whether the strategy takes the model in FP32 and casts it to the plan's precision itself."""
    return plan.data_parallel is DataParallel.ZERO3 and groups.sharding.size > 1


def apply_data_parallel(plan: Plan, model: nn.Module, groups: Groups, recorder: Recorder) -> DataParallelStrategy:
    """Applies a plan's data parallelism to a model or to a rank's part of it, and returns the strategy."""
    shards_all = holds_masters(plan, groups)  # ZeRO-3 handles experts itself
    if shards_all or not any(is_expert(parameter) for parameter in model.parameters()):
        return _strategy(plan, model, groups, recorder)
    dense = _strategy(plan, Subset(model, lambda p: not is_expert(p)), groups, recorder)
    experts = _strategy(plan, Subset(model, is_expert), groups.of_experts(), recorder)
    return ExpertStrategies(model, dense, experts, groups)


def _strategy(plan: Plan, model: nn.Module, groups: Groups, recorder: Recorder) -> DataParallelStrategy:
    if plan.data_parallel in (DataParallel.ALL_REDUCE, DataParallel.DDP) and groups.data.size == 1:
        return Alone(model)
    if plan.data_parallel is DataParallel.DDP and (
        # DistributedDataParallel needs one backward after each forward, and always overlaps. Its compressed
        # collectives can't be recorded. It splits compiled code at its buckets and copies each gradient
        # separately: with GPT-2-Medium on two H200, the host took as long as the GPU. It has one group for all
        # parameters, also for experts.
        plan.pipeline_parallel > 1
        or not plan.overlap
        or plan.gradient_traffic is not GradientTraffic.NATIVE
        or plan.compile
        or plan.graphs
        or plan.expert_parallel > 1
    ):
        return BucketedAllReduce(model, plan, groups, recorder)
    if plan.data_parallel is DataParallel.ZERO3 and groups.sharding.size == 1:
        return Zero2(
            model, plan, groups, recorder
        )  # parameters stay whole, because there is no rank to share with
    if plan.data_parallel is DataParallel.ZERO3:
        from wirecost.train.parallel.zero3 import Zero3

        return Zero3(model, plan, groups, recorder)
    return STRATEGIES[plan.data_parallel](model, plan, groups, recorder)
