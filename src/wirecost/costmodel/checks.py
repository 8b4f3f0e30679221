"""What a job can't be: layouts and batches that don't fit the model, the cluster or each other.

Predictions and rows of tables are refused by the same checks.
"""

from __future__ import annotations

from wirecost.errors import SpecError
from wirecost.spec import DataParallel, PipelineSchedule, Plan, RankOrder, Workload
from wirecost.spec.workload import nearest_multiples

ENDS = 2
"""Embedding and loss, which may each take the place of a layer in a pipeline (Llama 3, arXiv:2407.21783, section
3.3.2)."""


def check_gpus(count: int, plan: Plan, gpus_per_node: int) -> None:
    """Checks a number of GPUs.

    Raises:
        SpecError: if they don't fill whole nodes, or don't divide by the plan's degrees.
    """
    if count < 1:
        raise SpecError(f"gpus: {count} can't run anything; at least 1")
    if count > gpus_per_node and count % gpus_per_node:
        raise SpecError(
            f"gpus: {count} does not fill whole nodes of {gpus_per_node}; nearest that does: "
            f"{nearest_multiples(count, gpus_per_node)}"
        )
    degree = plan.model_parallel
    if count % degree:
        raise SpecError(
            f"gpus: {count} does not divide by tensor x pipeline x context = {degree} of plan '{plan.name}'; "
            f"nearest that does: {nearest_multiples(count, degree)}"
        )


def check_global_batch(batch: int, micro_batch: int, ranks: int) -> None:
    """Checks the sequences of an iteration.

    Raises:
        SpecError: if they don't divide over the data-parallel ranks.
    """
    step = micro_batch * ranks
    if batch < 1:
        raise SpecError(f"global_batch: {batch} is no batch; at least {step}")
    if batch % step:
        raise SpecError(
            f"global_batch: {batch} does not divide over {ranks} data-parallel ranks of micro-batch "
            f"{micro_batch}; nearest that does: {nearest_multiples(batch, step)}"
        )


def check_chunks(workload: Workload, plan: Plan, accumulation: int) -> None:
    """Checks the chunks of a pipeline with `accumulation` micro-batches.

    Raises:
        SpecError: if there are more chunks than layers, or interleaving doesn't go with the micro-batches.
    """
    if plan.virtual_stages > 1 and accumulation % plan.pipeline_parallel:
        raise SpecError(
            f"global_batch: interleaving needs the {accumulation} micro-batches to be a multiple of "
            f"pipeline_parallel {plan.pipeline_parallel}"
        )
    chunks = plan.pipeline_parallel * plan.virtual_stages
    layers = workload.layers + (workload.decoder_layers or 0)
    if chunks > layers + ENDS * (plan.virtual_stages > 1):
        raise SpecError(
            f"plan: {chunks} pipeline chunks are more than the workload's {layers} layers; at most that many"
        )


def check_plan(workload: Workload, plan: Plan, ranks: int, *, experts_split: bool = False) -> None:
    """Checks that a workload can be split according to the plan with `ranks` data-parallel ranks.

    Args:
        experts_split: whether the stack divides experts over tensor-parallel ranks as well.

    Raises:
        SpecError: names the plan's invalid key.
    """
    tensor = plan.tensor_parallel
    if workload.heads % tensor:
        raise SpecError(
            f"plan.tensor_parallel: {tensor} does not divide the workload's {workload.heads} heads; "
            f"a divisor of {workload.heads} does"
        )
    if workload.ffn % tensor:
        raise SpecError(f"plan.tensor_parallel: {tensor} does not divide ffn_hidden {workload.ffn}")
    if workload.sequence_length % (2 * plan.context_parallel) and plan.context_parallel > 1:
        raise SpecError(
            f"plan.context_parallel: {plan.context_parallel} x 2 chunks don't divide sequence_length "
            f"{workload.sequence_length}"
        )
    if plan.tensor_overlap and tensor > 1 and not plan.sequence_parallel:
        raise SpecError(
            "plan.tensor_overlap: collectives run under matrix products only with sequence parallelism; set "
            "sequence_parallel: true"
        )
    if plan.context_communication == "a2a" and workload.heads % (tensor * plan.context_parallel):
        raise SpecError(
            f"plan.context_communication: a2a divides the workload's {workload.heads} heads over "
            f"{tensor * plan.context_parallel} tensor and context ranks, which doesn't divide them; use p2p"
        )
    if plan.pipeline_schedule is PipelineSchedule.DUALPIPE and plan.pipeline_parallel % 2:
        raise SpecError(
            f"plan.pipeline_schedule: dualpipe needs an even pipeline_parallel, not {plan.pipeline_parallel}"
        )
    if plan.rank_order is RankOrder.DATA_LAST and plan.context_parallel > 1:
        raise SpecError(
            f"plan.rank_order: {plan.rank_order} is predicted without context parallelism only, not with "
            f"context_parallel {plan.context_parallel}"
        )
    if plan.virtual_stages > 1 and plan.pipeline_parallel == 1:
        raise SpecError("plan.virtual_stages: interleaving needs pipeline_parallel above 1")
    if plan.sharding_group == "hpz" and plan.data_parallel is not DataParallel.ZERO3:
        raise SpecError(
            f"plan.sharding_group: hpz keeps a second copy of what zero3 shards, not {plan.data_parallel}; use "
            "data_parallel zero3"
        )
    if plan.expert_parallel > 1:
        _check_experts(workload, plan, ranks * (plan.tensor_parallel if experts_split else 1))


def _check_experts(workload: Workload, plan: Plan, ranks: int) -> None:
    moe = workload.mixture_of_experts
    if moe is None:
        raise SpecError("plan.expert_parallel: the workload has no mixture_of_experts to spread")
    if moe.experts % plan.expert_parallel:
        raise SpecError(f"plan.expert_parallel: {plan.expert_parallel} does not divide {moe.experts} experts")
    shared = ranks * plan.context_parallel
    if shared % plan.expert_parallel:
        raise SpecError(
            f"plan.expert_parallel: {plan.expert_parallel} does not divide the {shared} ranks that it shares with "
            "data parallelism"
        )
