"""Checks whether the engine can run a plan alone, with a workload, and in an experiment."""

from __future__ import annotations

from wirecost.spec import DataParallel, Experiment, GradientTraffic, PipelineSchedule, Plan, Recompute, Workload
from wirecost.spec.workload import nearest_multiples
from wirecost.train.checks.context import check_context_parallel
from wirecost.train.checks.experts import check_balance, check_expert_ranks, check_experts
from wirecost.train.checks.graphs import check_graphs
from wirecost.train.checks.sharding import check_sharding_group
from wirecost.train.checks.tensor import check_tensor_parallel


def check_plan(plan: Plan) -> str | None:
    """Returns why the engine can't run a plan with any workload, or None if it can."""
    if plan.expert_parallel > 1 and plan.data_parallel is DataParallel.ZERO3 and plan.sharding_group == "node":
        return (
            f"plan '{plan.name}': zero3 can't replicate experts over hosts beside expert_parallel "
            f"{plan.expert_parallel}; use sharding_group all, or zero1 or zero2"
        )
    if plan.sharding_group == "hpz":
        return (
            f"plan '{plan.name}': the engine has no second copy of the parameters in each node (hpz); use "
            "sharding_group all or node (predictions take hpz)"
        )
    if plan.context_communication == "a2a":
        return (
            f"plan '{plan.name}': the engine gathers keys and values with context parallelism; leave "
            "context_communication out (predictions take a2a)"
        )
    if plan.pipeline_schedule in (PipelineSchedule.ZB_H1, PipelineSchedule.ZB_H2, PipelineSchedule.DUALPIPE):
        return (
            f"plan '{plan.name}': the engine has no pipeline_schedule {plan.pipeline_schedule}; use gpipe, 1f1b "
            "or interleaved (predictions take it)"
        )
    if plan.lora_rank is not None:
        return (
            f"plan '{plan.name}': the engine trains all parameters, no adapters; leave lora_rank out (predictions "
            "take it)"
        )
    if plan.tensor_overlap:
        return (
            f"plan '{plan.name}': the engine runs no collectives under the products beside them; leave "
            "tensor_overlap out (predictions take it)"
        )
    if plan.matrix_precision is not None:
        return (
            f"plan '{plan.name}': the engine multiplies matrices in 'precision' ({plan.precision}), not in "
            f"{plan.matrix_precision}; leave matrix_precision out (predictions take it)"
        )
    if plan.sequence_parallel and plan.tensor_parallel == 1:
        return f"plan '{plan.name}': sequence_parallel needs tensor_parallel 2 or more, not 1; leave it out"
    if plan.recompute is Recompute.SELECTIVE and plan.context_parallel > 1:
        return (
            f"plan '{plan.name}': recompute selective needs context_parallel 1, because attention would gather "
            "keys and values again; use recompute full or none"
        )
    return _check_pipeline(plan) or _check_data_parallel(plan)


def _check_pipeline(plan: Plan) -> str | None:
    interleaved = plan.pipeline_schedule is PipelineSchedule.INTERLEAVED
    if plan.virtual_stages > 1 and (plan.pipeline_parallel == 1 or not interleaved):
        return (
            f"plan '{plan.name}': virtual_stages {plan.virtual_stages} needs pipeline_schedule interleaved and "
            f"pipeline_parallel of at least 2, not {plan.pipeline_schedule} and {plan.pipeline_parallel}"
        )
    if interleaved and plan.virtual_stages == 1:
        return (
            f"plan '{plan.name}': pipeline_schedule interleaved needs virtual_stages of at least 2; "
            "with 1 it is 1f1b"
        )
    if plan.pipeline_parallel > 1 and plan.data_parallel is DataParallel.ZERO3:
        return (
            f"plan '{plan.name}': zero3 would gather every stage's parameters anew for each micro-batch of a "
            f"pipeline; use zero1 or zero2 with pipeline_parallel {plan.pipeline_parallel}"
        )
    return None


SHARDED = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)


def _check_data_parallel(plan: Plan) -> str | None:
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


def check_combination(workload: Workload, plan: Plan) -> str | None:
    """Returns why the engine can't run a workload with a plan, or None if it can.

    The workload passes `check_workload`, and the plan passes `check_plan`.
    """
    return (
        check_tensor_parallel(workload, plan)
        or check_context_parallel(workload, plan)
        or check_experts(workload, plan)
        or _check_stages(workload, plan)
    )


def _check_stages(workload: Workload, plan: Plan) -> str | None:
    stages = plan.pipeline_parallel * plan.virtual_stages
    layers = workload.layers + (workload.decoder_layers or 0)
    if layers % stages:
        return (
            f"plan '{plan.name}': the {layers} layers of workload '{workload.name}' do not divide over {stages} "
            f"pipeline stages; nearest that do: {nearest_multiples(layers, stages)}"
        )
    return None


def check_experiment(experiment: Experiment) -> str | None:
    """Returns why the engine can't run an experiment, or None if it can.

    The experiment's workload and plan pass `check_combination`.
    """
    if problem := (
        check_graphs(experiment)
        or check_sharding_group(experiment)
        or check_expert_ranks(experiment)
        or check_balance(experiment)
    ):
        return problem
    plan = experiment.plan
    if plan.pipeline_schedule is PipelineSchedule.INTERLEAVED and experiment.accumulation % plan.pipeline_parallel:
        return (
            f"plan '{plan.name}': pipeline_schedule interleaved needs a number of micro-batches that is a "
            f"multiple of pipeline_parallel {plan.pipeline_parallel}; a global batch of {experiment.global_batch} "
            f"over {experiment.data_parallel_degree} data-parallel ranks in micro-batches of "
            f"{experiment.micro_batch} gives {experiment.accumulation}; nearest that do: "
            f"{nearest_multiples(experiment.accumulation, plan.pipeline_parallel)}; set the "
            "scaling's micro_batch or global_batch"
        )
    return None
