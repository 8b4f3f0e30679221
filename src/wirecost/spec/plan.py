"""Plan: how the model is spread over ranks, and in which precision. Batch sizes belong to the experiment."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, PositiveInt

from wirecost.spec.base import Spec


class DataParallel(StrEnum):
    """How gradients (and with ZeRO, state) are kept equal over the data-parallel group."""

    ALL_REDUCE = "all_reduce"  # one flat buffer after backward, nothing overlaps (study A)
    DDP = "ddp"  # PyTorch's bucketed all-reduce, overlapped with backward
    ZERO1 = "zero1"  # optimizer state sharded: reduce-scatter gradients, all-gather parameters
    ZERO2 = "zero2"  # and gradients sharded
    ZERO3 = "zero3"  # and parameters sharded (FSDP)


class Precision(StrEnum):
    """`fp32` throughout; `bf16`/`fp16`: parameters and gradients in 16 bits, FP32 master weights in Adam."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def bytes_per_element(self) -> int:
        return 4 if self is Precision.FP32 else 2


class MatrixPrecision(StrEnum):
    """Number formats in which a GPU multiplies matrices; a datasheet names one peak for each."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP4 = "fp4"


class Recompute(StrEnum):
    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class PipelineSchedule(StrEnum):
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"


class GradientTraffic(StrEnum):
    """What gradients are turned into for the wire of the data-parallel group; sums are kept in `precision`."""

    NATIVE = "native"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"  # one scale for each block of elements
    POWERSGD = "powersgd"  # low-rank factors with error feedback (Vogels et al. 2019, arXiv:1905.13727)


class RankOrder(StrEnum):
    """Which parallelism takes neighbouring ranks, the leftmost first; hosts hold neighbouring ranks."""

    TENSOR_FIRST = "tp-cp-dp-pp"  # tensor parallel inside hosts, pipeline across them (Megatron-LM's)
    PIPELINE_FIRST = "pp-dp-cp-tp"  # the reverse


class Plan(Spec):
    """Degrees multiply to the world size with the data-parallel degree left over."""

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    data_parallel: DataParallel = DataParallel.ALL_REDUCE
    sharding_group: Literal["all", "node"] = "all"
    tensor_parallel: PositiveInt = 1
    sequence_parallel: bool = False
    pipeline_parallel: PositiveInt = 1
    pipeline_schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    virtual_stages: PositiveInt = 1
    context_parallel: PositiveInt = 1
    expert_parallel: PositiveInt = 1
    precision: Precision = Precision.FP32
    matrix_precision: MatrixPrecision | None = None  # the layers' matrix products, where lower than `precision`
    recompute: Recompute = Recompute.NONE
    overlap: bool = True  # collectives run while computation does, where they can
    bucket_bytes: PositiveInt = 25 * 2**20  # of gradients, where they are sent in buckets
    gradient_traffic: GradientTraffic = GradientTraffic.NATIVE
    powersgd_rank: PositiveInt = 4
    rank_order: RankOrder = RankOrder.TENSOR_FIRST
    compile: bool = False  # torch.compile

    @property
    def model_parallel(self) -> int:
        """Ranks that hold one copy of the model: tensor x pipeline x context degrees."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel
