"""The ranks of an experiment in a grid: along which axis each way of sharing the work goes."""

from __future__ import annotations

import numpy as np

from wirecost.errors import SpecError
from wirecost.spec import Experiment, RankOrder

DIMENSIONS = ("pipeline", "replicate", "shard", "context", "tensor")
"""Slowest first in the order tp-cp-dp-pp. Data parallel is replicate x shard."""


def rank_grid(experiment: Experiment) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The ranks as an array with one axis for each of `DIMENSIONS`.

    Raises:
        SpecError: if sharding within a node can't be: data-parallel ranks of a host are a fraction.
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
