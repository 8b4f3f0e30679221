"""Arranges the ranks of an experiment in a grid with one axis for each kind of parallelism."""

from __future__ import annotations

import numpy as np

from wirecost.errors import SpecError
from wirecost.spec import Experiment, RankOrder

DIMENSIONS = ("pipeline", "replicate", "shard", "context", "tensor")
"""The grid's axes. In the rank order tp-cp-dp-pp the first varies slowest. Data parallelism is replicate x
shard."""


def rank_grid(experiment: Experiment) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Returns the ranks as an array with one axis for each of `DIMENSIONS`.

    Raises:
        SpecError: if the plan shards within a node, and a host doesn't have a whole number of data-parallel ranks.
    """
    plan = experiment.plan
    data = experiment.data_parallel_degree
    shard = data
    if plan.sharding_group == "node":
        inner = plan.pipeline_parallel
        if plan.rank_order is RankOrder.TENSOR_FIRST:
            inner = plan.tensor_parallel * plan.context_parallel
        shard = experiment.ranks_per_host // inner
        if shard * inner != experiment.ranks_per_host or not shard or data % shard:
            raise SpecError(
                f"plan '{plan.name}': sharding_group node needs hosts with a whole number of data-parallel ranks; "
                f"{experiment.ranks_per_host} ranks on a host are not a multiple of {inner}"
            )
    sizes = (plan.pipeline_parallel, data // shard, shard, plan.context_parallel, plan.tensor_parallel)
    if plan.rank_order is RankOrder.TENSOR_FIRST:
        return np.arange(experiment.ranks).reshape(sizes)
    return np.arange(experiment.ranks).reshape(sizes[::-1]).transpose()
