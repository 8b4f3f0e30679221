"""Which strategy a plan names."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from wirecost.spec import DataParallel, Plan
from wirecost.train.groups import Groups
from wirecost.train.parallel.all_reduce import FlatAllReduce
from wirecost.train.parallel.base import DataParallelStrategy
from wirecost.train.parallel.ddp import OverlappedDDP
from wirecost.train.recorder import Recorder

STRATEGIES: dict[DataParallel, Callable[[nn.Module, Plan, Groups, Recorder], DataParallelStrategy]] = {
    DataParallel.ALL_REDUCE: FlatAllReduce,
    DataParallel.DDP: OverlappedDDP,
}


def apply_data_parallel(plan: Plan, model: nn.Module, groups: Groups, recorder: Recorder) -> DataParallelStrategy:
    """Applies a plan's data parallelism to a model (or to a rank's part of one)."""
    if groups.data.size == 1 and plan.data_parallel is DataParallel.DDP:
        return FlatAllReduce(model, plan, groups, recorder)  # DistributedDataParallel needs a group
    return STRATEGIES[plan.data_parallel](model, plan, groups, recorder)
