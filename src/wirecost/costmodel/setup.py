"""The setup of a prediction: specifications that are checked for consistency and converted for the formulas."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.costmodel.buckets import buckets_of
from wirecost.costmodel.checks import check_chunks, check_global_batch, check_gpus, check_plan
from wirecost.costmodel.dataparallel import usual_bucket_bytes
from wirecost.costmodel.gradient_traffic import wire
from wirecost.costmodel.inputs import RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, Layout
from wirecost.costmodel.shape import shape_of
from wirecost.errors import SpecError
from wirecost.spec import (
    GPU,
    Cluster,
    DataParallel,
    PipelineSchedule,
    Plan,
    RankOrder,
    Recompute,
    Stack,
    Workload,
    stack_named,
)

ZERO_BUBBLE = {PipelineSchedule.ZB_H1: 1.0, PipelineSchedule.ZB_H2: 2.0}
TENSOR_OVERLAP = {None: 0.0, True: 1.0, False: -1.0}
SHARDING = {
    DataParallel.ALL_REDUCE: 0.0,
    DataParallel.DDP: 0.0,
    DataParallel.ZERO1: 1.0,
    DataParallel.ZERO2: 2.0,
    DataParallel.ZERO3: 3.0,
}


@dataclass(frozen=True)
class Setup:
    """The setup of a prediction. The job uses `gpus` of the cluster. Batches count sequences."""

    workload: Workload
    plan: Plan
    cluster: Cluster
    stack: Stack
    gpus: int
    micro_batch: int
    global_batch: int
    batch_given: bool = False
    """Whether the job states its global batch, so that other numbers of GPUs train on the same one."""

    @property
    def data_parallel(self) -> int:
        """Returns the number of data-parallel ranks."""
        return self.gpus // self.plan.model_parallel

    @property
    def accumulation(self) -> int:
        """Returns the number of micro-batches of one rank in an iteration."""
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
    """Returns a setup of consistent parts. `gpus` defaults to all of the cluster's, `global_batch` to one
    micro-batch for each data-parallel rank, or four for each stage of a pipeline.

    Raises:
        SpecError: names the invalid key and the nearest valid value.
    """
    count = cluster.gpus if gpus is None else gpus
    if count > cluster.gpus:
        raise SpecError(
            f"gpus: {count} is more than the {cluster.gpus} of cluster '{cluster.name}'; give it more nodes"
        )
    check_gpus(count, plan, cluster.gpus_per_node)
    ranks = count // plan.model_parallel
    if stack is None:
        stack = default_stack(plan, cluster.accelerator)
    if isinstance(stack, str):
        stack = stack_named(stack)
    check_plan(workload, plan, ranks, experts_split=stack.tensor_parallel.experts_split)
    if micro_batch < 1:
        raise SpecError(f"micro_batch: {micro_batch} is no batch; at least 1")
    batch_given = global_batch is not None
    if global_batch is None:
        rounds = 4 * plan.pipeline_parallel if plan.pipeline_parallel > 1 else 1
        global_batch = micro_batch * ranks * rounds
    check_global_batch(global_batch, micro_batch, ranks)
    check_chunks(workload, plan, global_batch // (micro_batch * ranks))
    return Setup(workload, plan, cluster, stack, count, micro_batch, global_batch, batch_given)


OTHER_SOFTWARE = {
    "ascend": "generic",
    "gaudi": "habana",
    "gaudi3": "generic",
    "tpu": "generic",
    "trainium": "generic",
}
"""The default stack of architectures on which neither CUDA nor ROCm runs. No stack that was fitted on a GPU is
theirs."""


def default_data_parallel(tensor: int, pipeline: int) -> DataParallel:
    """Returns the data parallelism of a job that states none: ZeRO-1 beside tensor or pipeline parallelism, and
    ZeRO-3 without."""
    return DataParallel.ZERO1 if tensor > 1 or pipeline > 1 else DataParallel.ZERO3


def default_stack(plan: Plan, device: GPU) -> str:
    """Returns the stack of a job that names none: megatron-core for tensor, pipeline and context parallelism and
    fsdp-flash without, and another one on accelerators with software of their own."""
    if device.architecture in OTHER_SOFTWARE:
        return OTHER_SOFTWARE[device.architecture]
    return "megatron-core" if plan.model_parallel > 1 else "fsdp-flash"


def trained_share(workload: Workload, lora_rank: int | None) -> float:
    """Returns the number of parameters with gradients over the number of parameters: 1, or with LoRA that of the
    adapters of a rank. An adapter of rank r on a linear of n inputs and m outputs has r (n + m) parameters (Hu et
    al. 2021, arXiv:2106.09685, section 4.1)."""
    if lora_rank is None:
        return 1.0
    shape = shape_of(workload)
    attention = 4 * shape.hidden + 2 * shape.query + 2 * shape.key_value
    mlp = shape.mlp_matrices * (shape.hidden + (shape.dense_ffn if shape.moe_share else shape.ffn))
    experts = shape.experts + shape.shared_experts
    expert_mlp = experts * shape.mlp_matrices * (shape.hidden + shape.ffn)
    mlp = (1 - shape.moe_share) * mlp + shape.moe_share * expert_mlp
    layers = shape.layers * (attention + mlp) + shape.decoder_layers * (2 * attention + mlp)
    return min(1.0, float(lora_rank * layers / shape.parameters))


def sends_buckets(data_parallel: DataParallel, *, overlap: bool) -> bool:
    """Returns whether the engine sends gradients in buckets. DDP and ZeRO-2 do so without overlap as well."""
    if data_parallel is DataParallel.ZERO1:
        return overlap
    return data_parallel in (DataParallel.DDP, DataParallel.ZERO2)


def layout_of(checked: Setup) -> Layout:
    """Returns the plan and batches as the formulas read them."""
    plan = checked.plan
    recompute = {
        Recompute.NONE: RECOMPUTE_NONE,
        Recompute.SELECTIVE: RECOMPUTE_SELECTIVE,
        Recompute.FULL: RECOMPUTE_FULL,
    }
    held = plan.tensor_parallel * plan.pipeline_parallel
    bucket_bytes = float(plan.bucket_bytes)
    if "bucket_bytes" not in plan.model_fields_set:
        bucket_bytes = float(usual_bucket_bytes(checked.stack, float(checked.data_parallel), bucket_bytes))
    buckets = None
    if checked.stack.data_parallel.buckets == "whole" and sends_buckets(plan.data_parallel, overlap=plan.overlap):
        degrees = (plan.tensor_parallel, plan.pipeline_parallel, plan.virtual_stages)
        buckets = buckets_of(checked.workload, *degrees, plan.precision.bytes_per_element, bucket_bytes)
    sent = wire(plan.gradient_traffic, checked.workload, plan.powersgd_rank, checked.data_parallel, held)
    return Layout(
        tensor=float(plan.tensor_parallel),
        pipeline=float(plan.pipeline_parallel),
        data=float(checked.data_parallel),
        micro_batch=float(checked.micro_batch),
        accumulation=float(checked.accumulation),
        virtual=float(plan.virtual_stages),
        context=float(plan.context_parallel),
        expert=float(plan.expert_parallel),
        sharding=SHARDING[plan.data_parallel],
        bucketed=float(plan.data_parallel is not DataParallel.ALL_REDUCE and plan.overlap),
        node_sharding=float(plan.sharding_group == "node"),
        secondary=float(plan.sharding_group == "hpz"),
        trained=trained_share(checked.workload, plan.lora_rank),
        sequence_parallel=float(plan.sequence_parallel),
        tensor_overlap=TENSOR_OVERLAP[plan.tensor_overlap],
        recompute=recompute[plan.recompute],
        gpipe=float(plan.pipeline_schedule is PipelineSchedule.GPIPE),
        zero_bubble=ZERO_BUBBLE.get(plan.pipeline_schedule, 0.0),
        dualpipe=float(plan.pipeline_schedule is PipelineSchedule.DUALPIPE),
        exchanged_context=float(plan.context_parallel > 1 and plan.context_communication == "a2a"),
        gradient_bytes=sent.bytes,
        exchanged=float(sent.exchanged),
        factored=float(sent.factored),
        compression_bytes=sent.memory_bytes,
        bucket_bytes=bucket_bytes,
        mean_bucket_bytes=buckets.mean_bytes if buckets else 0.0,
        last_bucket_bytes=buckets.last_bytes if buckets else 0.0,
        pipeline_first=float(plan.rank_order is RankOrder.PIPELINE_FIRST),
        data_last=float(plan.rank_order is RankOrder.DATA_LAST),
    )
