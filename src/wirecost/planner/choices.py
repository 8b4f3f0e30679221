"""What a plan chooses: the names of the choices, their values, and plans as short text."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.costmodel.inputs import RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE
from wirecost.spec import DataParallel, Plan, RankOrder, Recompute
from wirecost.spec.plan import PLAN_OF_OPTIONS, PipelineSchedule

RECOMPUTES = {
    Recompute.NONE: RECOMPUTE_NONE,
    Recompute.SELECTIVE: RECOMPUTE_SELECTIVE,
    Recompute.FULL: RECOMPUTE_FULL,
}


@dataclass(frozen=True)
class Choice:
    """A plan with its micro-batch.

    Attributes:
        tp, pp, cp, ep, dp: degrees of tensor, pipeline, context, expert and data parallelism in ranks.
        vpp: number of chunks of layers on each pipeline rank.
        mb: number of sequences in a micro-batch.
        zero: ZeRO stage, 0 to 3.
        node_sharding: shards inside nodes, and replicas between them.
        overlap: whether data-parallel collectives run during computation.
        sp: sequence parallelism.
        recompute: what backward computes again.
        pp_first: whether pipeline stages, and not tensor-parallel ranks, are neighbours.
        dp_last: whether pipelines are inside nodes as far as they fit, and data parallelism is across them.
        schedule: the pipeline schedule. None is 1F1B, interleaved where there are several chunks.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    mb: int = 1
    zero: int = 0
    node_sharding: bool = False
    overlap: bool = False
    sp: bool = False
    recompute: Recompute = Recompute.NONE
    pp_first: bool = False
    dp_last: bool = False
    schedule: PipelineSchedule | None = None

    @property
    def label(self) -> str:
        """The plan as text that `--explain`, `--keep` and `--constraint` accept."""
        parts = [f"tp={self.tp}", f"pp={self.pp}"]
        parts += [f"vpp={self.vpp}"] if self.vpp > 1 else []
        parts += [f"cp={self.cp}"] if self.cp > 1 else []
        parts += [f"ep={self.ep}"] if self.ep > 1 else []
        parts += [f"dp={self.dp}", f"mb={self.mb}", f"zero={self.zero}"]
        parts += ["sharding_group=node"] if self.node_sharding else []
        parts += [f"sp={'on' if self.sp else 'off'}"] if self.tp > 1 else []
        parts += [f"recompute={self.recompute.value}"]
        parts += ["overlap=off"] if self.dp * self.cp > 1 and not self.overlap else []
        parts += ["placement=pp_first"] if self.pp_first else []
        parts += ["placement=dp_last"] if self.dp_last else []
        parts += [f"schedule={self.schedule.value}"] if self.schedule else []
        return ",".join(parts)

    @property
    def rank_order(self) -> RankOrder:
        """The order of the parallel dimensions over neighbouring ranks."""
        if self.dp_last:
            return RankOrder.DATA_LAST
        return RankOrder.PIPELINE_FIRST if self.pp_first else RankOrder.TENSOR_FIRST

    @property
    def pipeline_schedule(self) -> PipelineSchedule:
        """The pipeline schedule."""
        if self.schedule is not None:
            return self.schedule
        return PipelineSchedule.INTERLEAVED if self.vpp > 1 else PipelineSchedule.ONE_F_ONE_B

    @property
    def data_parallel(self) -> DataParallel:
        """The data parallelism of the plan."""
        if self.zero == 0:
            return DataParallel.DDP if self.overlap else DataParallel.ALL_REDUCE
        return (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)[self.zero - 1]


def plan_of(choice: Choice, precision: str, matrix_precision: str | None) -> Plan:
    """Returns the plan of a choice."""
    return Plan.model_validate(
        {
            "name": PLAN_OF_OPTIONS,
            "data_parallel": choice.data_parallel,
            "sharding_group": "node" if choice.node_sharding else "all",
            "tensor_parallel": choice.tp,
            "sequence_parallel": choice.sp,
            "pipeline_parallel": choice.pp,
            "pipeline_schedule": choice.pipeline_schedule,
            "virtual_stages": choice.vpp,
            "context_parallel": choice.cp,
            "expert_parallel": choice.ep,
            "precision": precision,
            "matrix_precision": matrix_precision,
            "recompute": choice.recompute,
            "overlap": choice.overlap,
            "rank_order": choice.rank_order,
        }
    )
