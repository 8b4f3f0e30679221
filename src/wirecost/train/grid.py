"""Arranges the ranks of an experiment in a grid with one axis for each kind of parallelism."""

from __future__ import annotations

import numpy as np

from wirecost.errors import SpecError
from wirecost.spec import Experiment, RankOrder
from wirecost.train.checks.experts import check_expert_ranks
from wirecost.train.checks.sharding import check_sharding_group, shard_ranks

DIMENSIONS = ("pipeline", "replicate", "shard", "expert", "context", "tensor")
"""The grid's axes. In the rank order tp-cp-dp-pp the first varies slowest. Data parallelism is replicate x
shard x expert."""


def rank_grid(experiment: Experiment) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Returns the ranks as an array with one axis for each of `DIMENSIONS`.

    Raises:
        SpecError: if hosts don't have a whole number of data-parallel ranks for a plan that shards within a node,
            or experts can't be divided over the data-parallel ranks.
    """
    if problem := check_sharding_group(experiment) or check_expert_ranks(experiment):
        raise SpecError(problem)
    plan = experiment.plan
    shards, experts = shard_ranks(experiment), plan.expert_parallel
    replicas = experiment.data_parallel_degree // shards
    sizes = (
        plan.pipeline_parallel,
        replicas,
        shards // experts,
        experts,
        plan.context_parallel,
        plan.tensor_parallel,
    )
    if plan.rank_order is RankOrder.TENSOR_FIRST:
        return np.arange(experiment.ranks).reshape(sizes)
    if plan.rank_order is RankOrder.DATA_LAST:
        pipeline, replicate, shard, expert, *inner = sizes
        ranks = np.arange(experiment.ranks).reshape(replicate, shard, expert, pipeline, *inner)
        return np.moveaxis(ranks, 3, 0)
    return np.arange(experiment.ranks).reshape(sizes[::-1]).transpose()
