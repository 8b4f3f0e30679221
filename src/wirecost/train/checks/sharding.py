"""Checks whether the ranks of a host can share the shards of ZeRO."""

from __future__ import annotations

from wirecost.spec import Experiment, RankOrder


def _inner(experiment: Experiment) -> int:
    """Returns the number of neighbouring ranks that hold parts of one replica of the model."""
    plan = experiment.plan
    if plan.rank_order is RankOrder.TENSOR_FIRST:
        return plan.tensor_parallel * plan.context_parallel
    if plan.rank_order is RankOrder.DATA_LAST:
        return plan.model_parallel
    return plan.pipeline_parallel


def shard_ranks(experiment: Experiment) -> int:
    """Returns over how many data-parallel ranks ZeRO shards.

    The experiment passes `check_sharding_group`.
    """
    if experiment.plan.sharding_group == "node":
        return experiment.ranks_per_host // _inner(experiment)
    return experiment.data_parallel_degree


def check_sharding_group(experiment: Experiment) -> str | None:
    """Returns why sharding within a node is impossible, or None if it isn't asked for or possible."""
    plan, host, data = experiment.plan, experiment.ranks_per_host, experiment.data_parallel_degree
    if plan.sharding_group != "node":
        return None
    inner = _inner(experiment)
    needs = f"plan '{plan.name}': sharding_group node needs hosts with a whole number of data-parallel ranks; "
    if host % inner:
        return f"{needs}{host} ranks on a host are not a multiple of {inner}"
    shard = host // inner
    if data % shard:
        return f"{needs}{data} data-parallel ranks do not divide over hosts with {shard} of them"
    return None
