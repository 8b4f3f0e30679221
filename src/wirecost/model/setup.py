"""What is predicted: specifications checked against each other, and as the formulas read them."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.errors import SpecError
from wirecost.model.inputs import RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, Layout
from wirecost.model.machine import stack_named
from wirecost.model.wire import wire
from wirecost.spec import (
    Cluster,
    DataParallel,
    PipelineSchedule,
    Plan,
    RankOrder,
    Recompute,
    Stack,
    Workload,
)
from wirecost.spec.workload import nearest_multiples

SHARDING = {
    DataParallel.ALL_REDUCE: 0.0,
    DataParallel.DDP: 0.0,
    DataParallel.ZERO1: 1.0,
    DataParallel.ZERO2: 2.0,
    DataParallel.ZERO3: 3.0,
}


@dataclass(frozen=True)
class Setup:
    """What is predicted. `gpus` of the cluster are used; the rest of it stands still. Batches count sequences."""

    workload: Workload
    plan: Plan
    cluster: Cluster
    stack: Stack
    gpus: int
    micro_batch: int
    global_batch: int

    @property
    def data_parallel(self) -> int:
        return self.gpus // self.plan.model_parallel

    @property
    def accumulation(self) -> int:
        return self.global_batch // (self.micro_batch * self.data_parallel)


def setup(
    workload: Workload,
    plan: Plan,
    cluster: Cluster,
    *,
    stack: str | Stack | None = None,
    gpus: int | None = None,
    micro_batch: int = 1,
    global_batch: int | None = None,
) -> Setup:
    """Checks that the pieces fit together.

    Raises:
        SpecError: naming the key that can't be, and the nearest value that can.
    """
    count = cluster.gpus if gpus is None else gpus
    if count < 1:
        raise SpecError(f"gpus: {count} can't run anything; at least 1")
    if count > cluster.gpus:
        raise SpecError(
            f"gpus: {count} is more than the {cluster.gpus} of cluster '{cluster.name}'; give it more nodes"
        )
    if count > cluster.gpus_per_node and count % cluster.gpus_per_node:
        raise SpecError(
            f"gpus: {count} does not fill whole nodes of {cluster.gpus_per_node}; nearest that does: "
            f"{nearest_multiples(count, cluster.gpus_per_node)}"
        )
    degree = plan.model_parallel
    if count % degree:
        raise SpecError(
            f"gpus: {count} does not divide by tensor x pipeline x context = {degree} of plan "
            f"'{plan.name}'; nearest "
            f"that does: {nearest_multiples(count, degree)}"
        )
    _check_plan(workload, plan, count // degree)
    if micro_batch < 1:
        raise SpecError(f"micro_batch: {micro_batch} is no batch; at least 1")
    step = micro_batch * (count // degree)
    batch = global_batch
    if batch is None:
        batch = step * (4 * plan.pipeline_parallel if plan.pipeline_parallel > 1 else 1)
    if batch < 1:
        raise SpecError(f"global_batch: {batch} is no batch; at least {step}")
    if batch % step:
        raise SpecError(
            f"global_batch: {batch} does not divide over {count // degree} data-parallel ranks of micro-batch "
            f"{micro_batch}; nearest that does: {nearest_multiples(batch, step)}"
        )
    if isinstance(stack, str):
        stack = stack_named(stack)
    if stack is None:
        stack = stack_named("megatron-core" if degree > 1 else "fsdp-flash")
    made = Setup(workload, plan, cluster, stack, count, micro_batch, batch)
    chunks = plan.pipeline_parallel * plan.virtual_stages
    if plan.virtual_stages > 1 and made.accumulation % plan.pipeline_parallel:
        raise SpecError(
            f"global_batch: interleaving needs the {made.accumulation} micro-batches to be a multiple of "
            f"pipeline_parallel {plan.pipeline_parallel}"
        )
    if chunks > workload.layers + (workload.decoder_layers or 0):
        raise SpecError(
            f"plan: {chunks} pipeline chunks are more than the workload's {workload.layers} layers; "
            "at most that many"
        )
    return made


def _check_plan(workload: Workload, plan: Plan, data: int) -> None:
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
    if plan.virtual_stages > 1 and plan.pipeline_parallel == 1:
        raise SpecError("plan.virtual_stages: interleaving needs pipeline_parallel above 1")
    if plan.expert_parallel > 1:
        moe = workload.mixture_of_experts
        if moe is None:
            raise SpecError("plan.expert_parallel: the workload has no mixture_of_experts to spread")
        if moe.experts % plan.expert_parallel:
            raise SpecError(f"plan.expert_parallel: {plan.expert_parallel} does not divide {moe.experts} experts")
        if data * plan.context_parallel % plan.expert_parallel:
            raise SpecError(
                f"plan.expert_parallel: {plan.expert_parallel} does not divide the {data} "
                "data-parallel ranks that "
                "it shares"
            )


def layout_of(made: Setup) -> Layout:
    """The plan and batches as the formulas read them."""
    plan = made.plan
    recompute = {
        Recompute.NONE: RECOMPUTE_NONE,
        Recompute.SELECTIVE: RECOMPUTE_SELECTIVE,
        Recompute.FULL: RECOMPUTE_FULL,
    }
    held = plan.tensor_parallel * plan.pipeline_parallel
    sent = wire(plan.gradient_traffic, made.workload, plan.powersgd_rank, made.data_parallel, held)
    return Layout(
        tensor=float(plan.tensor_parallel),
        pipeline=float(plan.pipeline_parallel),
        data=float(made.data_parallel),
        micro_batch=float(made.micro_batch),
        accumulation=float(made.accumulation),
        virtual=float(plan.virtual_stages),
        context=float(plan.context_parallel),
        expert=float(plan.expert_parallel),
        sharding=SHARDING[plan.data_parallel],
        bucketed=float(plan.data_parallel is not DataParallel.ALL_REDUCE and plan.overlap),
        node_sharding=float(plan.sharding_group == "node"),
        sequence_parallel=float(plan.sequence_parallel),
        recompute=recompute[plan.recompute],
        gpipe=float(plan.pipeline_schedule is PipelineSchedule.GPIPE),
        gradient_bytes=sent.bytes,
        exchanged=float(sent.exchanged),
        factored=float(sent.factored),
        compression_bytes=sent.memory_bytes,
        bucket_bytes=float(plan.bucket_bytes),
        pipeline_first=float(plan.rank_order is RankOrder.PIPELINE_FIRST),
    )
