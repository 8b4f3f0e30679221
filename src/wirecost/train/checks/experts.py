"""Checks whether expert parallelism can divide the experts of a workload."""

from __future__ import annotations

from wirecost.spec import Experiment, Plan, Workload
from wirecost.spec.workload import nearest_multiples
from wirecost.train.checks.sharding import shard_ranks


def check_experts(workload: Workload, plan: Plan) -> str | None:
    """Returns why a plan can't divide a workload's experts, or None if it can."""
    moe = workload.mixture_of_experts
    where = f"workload '{workload.name}' with plan '{plan.name}'"
    if moe is None:
        if plan.expert_parallel > 1:
            return f"{where}: expert_parallel {plan.expert_parallel} needs a workload with mixture_of_experts"
        return None
    if moe.experts % plan.expert_parallel:
        return (
            f"{where}: {moe.experts} experts do not divide over expert_parallel {plan.expert_parallel}; nearest "
            f"that do: {nearest_multiples(moe.experts, plan.expert_parallel)}"
        )
    width = moe.expert_ffn_hidden or workload.ffn
    if width % plan.tensor_parallel:
        return (
            f"{where}: expert_ffn_hidden {width} does not divide over tensor_parallel {plan.tensor_parallel}; "
            f"nearest that does: {nearest_multiples(width, plan.tensor_parallel)}"
        )
    if moe.aux_loss and plan.context_parallel > 1:
        return (
            f"{where}: aux_loss {moe.aux_loss:g} balances the tokens of whole sequences, of which "
            f"context_parallel {plan.context_parallel} gives a rank a part; use aux_loss 0"
        )
    return None


def check_expert_ranks(experiment: Experiment) -> str | None:
    """Returns why the data-parallel ranks can't share the experts, or None if they can.

    The experiment passes `check_sharding_group`.
    """
    plan = experiment.plan
    ranks = shard_ranks(experiment)
    if ranks % plan.expert_parallel:
        of = "data-parallel ranks of a host" if plan.sharding_group == "node" else "data-parallel ranks"
        return (
            f"plan '{plan.name}': expert_parallel {plan.expert_parallel} does not divide the {ranks} {of}, which "
            "share the experts"
        )
    return None


def check_balance(experiment: Experiment) -> str | None:
    """Returns why balanced routing can't give each expert equally many copies, or None if it can."""
    moe, plan = experiment.workload.mixture_of_experts, experiment.plan
    if moe is None or moe.routing != "balanced":
        return None
    slices = plan.context_parallel * (plan.tensor_parallel if plan.sequence_parallel else 1)
    copies = experiment.micro_batch * experiment.workload.sequence_length // slices * moe.top_k
    if copies % moe.experts:
        return (
            f"workload '{experiment.workload.name}' with plan '{plan.name}': routing balanced can't divide "
            f"{copies} copies of a micro-batch's tokens over {moe.experts} experts; nearest that do: "
            f"{nearest_multiples(copies, moe.experts)}"
        )
    return None
