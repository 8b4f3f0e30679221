"""Plans: how a model is distributed over ranks, and in which precision. Batch sizes belong to experiments."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, PositiveInt

from wirecost.spec.base import Spec

PLAN_OF_OPTIONS = "options"
"""Name of a plan that options describe, without a preset or a file."""


class DataParallel(StrEnum):
    """How the replicas of the data-parallel group are kept equal, and what is sharded over it."""

    ALL_REDUCE = "all_reduce"  # one flat buffer after backward, without overlap
    DDP = "ddp"  # PyTorch's bucketed all-reduce, which overlaps with backward
    ZERO1 = "zero1"  # sharded optimizer state: reduce-scatter of gradients, all-gather of parameters
    ZERO2 = "zero2"  # sharded gradients as well
    ZERO3 = "zero3"  # sharded parameters as well (FSDP)

    @classmethod
    def _missing_(cls, value: object) -> DataParallel | None:
        """Accepts the names that frameworks use."""
        other_names = {
            "fsdp": cls.ZERO3,
            "fsdp2": cls.ZERO3,
            "full_shard": cls.ZERO3,
            "shard_grad_op": cls.ZERO2,
            "distributed_optimizer": cls.ZERO1,
        }
        name = str(value).lower().replace("-", "_")
        return other_names.get(name, next((member for member in cls if name == f"zero_{member.value[-1]}"), None))


class Precision(StrEnum):
    """The precision of training.

    `bf16` and `fp16` have 16-bit parameters and gradients, and FP32 master weights in Adam.
    """

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def bytes_per_element(self) -> int:
        """Size of a parameter or a gradient in bytes."""
        return 4 if self is Precision.FP32 else 2


class MatrixPrecision(StrEnum):
    """Number formats in which a GPU multiplies matrices. A datasheet has a peak for each number of bits. The
    formats of 8 and 4 bits differ in how many numbers share a scale."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"  # one scale for each tensor, delayed or current (Micikevicius et al. 2022, arXiv:2209.05433)
    FP8_BLOCKWISE = "fp8-blockwise"  # one for 1 x 128 and 128 x 128 numbers (DeepSeek-V3, arXiv:2412.19437)
    MXFP8 = "mxfp8"  # one for 32 numbers (OCP Microscaling Formats specification 1.0)
    FP4 = "fp4"
    NVFP4 = "nvfp4"  # one for 16 numbers and one for each tensor (NVIDIA 2025, arXiv:2509.25149)

    @property
    def unscaled(self) -> MatrixPrecision:
        """The format of as many bits under which datasheets state a peak."""
        formats = {
            MatrixPrecision.FP8_BLOCKWISE: MatrixPrecision.FP8,
            MatrixPrecision.MXFP8: MatrixPrecision.FP8,
            MatrixPrecision.NVFP4: MatrixPrecision.FP4,
        }
        return formats.get(self, self)

    @property
    def is_low(self) -> bool:
        """Whether it has 8 or 4 bits."""
        return self.unscaled in (MatrixPrecision.FP8, MatrixPrecision.FP4)


class Recompute(StrEnum):
    """Which activations backward recomputes."""

    NONE = "none"
    SELECTIVE = "selective"  # those of attention
    FULL = "full"  # those of whole layers


class PipelineSchedule(StrEnum):
    """The order of forwards and backwards on the ranks of a pipeline."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB_H1 = "zb-h1"  # gradients of weights fill the bubble, with 1F1B's memory (Qi et al. 2024, arXiv:2401.10241)
    ZB_H2 = "zb-h2"  # the same with twice the activations
    DUALPIPE = "dualpipe"  # micro-batches enter at both ends (DeepSeek-V3, arXiv:2412.19437, section 3.2.1)


class GradientTraffic(StrEnum):
    """The format in which gradients are sent over the data-parallel group. Sums are kept in `precision`."""

    NATIVE = "native"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"  # one scale for each block of elements
    POWERSGD = "powersgd"  # low-rank factors with error feedback (Vogels et al. 2019, arXiv:1905.13727)


class RankOrder(StrEnum):
    """The order of the parallel dimensions over the ranks. The leftmost one has neighbouring ranks, as hosts
    have."""

    TENSOR_FIRST = "tp-cp-dp-pp"  # tensor parallelism inside hosts, pipelines across hosts, as in Megatron-LM
    PIPELINE_FIRST = "pp-dp-cp-tp"  # the reverse order
    DATA_LAST = "tp-cp-pp-dp"  # pipelines inside hosts, replicas across them: Megatron-LM's --use-tp-pp-dp-mapping


class Plan(Spec):
    """How a model is distributed over ranks.

    The data-parallel degree isn't set. It is the number of ranks divided by the product of the other degrees.

    Attributes:
        name: name of the plan in tables and directories.
        data_parallel: how replicas of the model are kept equal, and what is sharded over them.
        sharding_group: ranks over which ZeRO shards: `all` of the data-parallel group, or those of one `node`.
            With `hpz`, ZeRO-3 shards over all of them, and each node has a second copy of the parameters for
            backward (hpZ of ZeRO++, Wang et al. 2023, arXiv:2306.10209, section 3.2).
        lora_rank: rank of the adapters that are trained instead of the parameters (LoRA, Hu et al. 2021,
            arXiv:2106.09685), on every linear of the layers. None trains the parameters.
        tensor_parallel: number of ranks over which each layer is split.
        sequence_parallel: whether activations between the split parts of a layer are split by sequence as well.
        tensor_overlap: whether collectives of tensor parallelism are cut in chunks that run under the matrix
            products beside them (PyTorch's async TP, user buffers of Transformer Engine). It needs sequence
            parallelism. None is what the software stack does.
        pipeline_parallel: number of pipeline stages.
        pipeline_schedule: order of forward and backward passes in the pipeline.
        virtual_stages: number of chunks of layers on each rank with the schedule `interleaved`.
        context_parallel: number of ranks over which each sequence is split.
        context_communication: how attention gets the rest of the sequence with context parallelism: `p2p`, a ring
            of keys and values, or `a2a`, an exchange of sequence for heads (DeepSpeed-Ulysses, Jacobs et al. 2023,
            arXiv:2309.14509).
        expert_parallel: number of ranks over which the experts of a layer are distributed.
        precision: precision of parameters, gradients and activations.
        matrix_precision: precision of the layers' matrix products, if it is lower than `precision`: `fp8` (a scale
            for each tensor), `fp8-blockwise`, `mxfp8`, `nvfp4` or `fp4`. Attention, the vocabulary layer and what
            is sent stay in `precision`.
        recompute: activations that backward computes again instead of keeping them.
        overlap: whether collectives run during computation where they can.
        bucket_bytes: size of a bucket of gradients in bytes.
        gradient_traffic: format in which gradients are sent.
        powersgd_rank: rank of the factors with `gradient_traffic: powersgd`.
        rank_order: order of the parallel dimensions over neighbouring ranks.
        compile: whether layers are compiled with torch.compile.
        graphs: whether a GPU replays iterations from CUDA graphs, so that the host launches a graph instead of
            every kernel and collective. By default it does where the host would hold it up and it can.
    """

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    data_parallel: DataParallel = DataParallel.ALL_REDUCE
    sharding_group: Literal["all", "node", "hpz"] = "all"
    lora_rank: PositiveInt | None = None
    tensor_parallel: PositiveInt = 1
    sequence_parallel: bool = False
    tensor_overlap: bool | None = None
    pipeline_parallel: PositiveInt = 1
    pipeline_schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    virtual_stages: PositiveInt = 1
    context_parallel: PositiveInt = 1
    context_communication: Literal["p2p", "a2a"] = "p2p"
    expert_parallel: PositiveInt = 1
    precision: Precision = Precision.FP32
    matrix_precision: MatrixPrecision | None = None
    recompute: Recompute = Recompute.NONE
    overlap: bool = True
    bucket_bytes: PositiveInt = 25 * 2**20
    gradient_traffic: GradientTraffic = GradientTraffic.NATIVE
    powersgd_rank: PositiveInt = 4
    rank_order: RankOrder = RankOrder.TENSOR_FIRST
    compile: bool = False
    graphs: bool | None = None

    @property
    def model_parallel(self) -> int:
        """Number of ranks with one copy of the model: tensor x pipeline x context degrees."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel
