"""Stack: the software that trains, by the properties that decide how fast it is. Calibrated, never per row."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from wirecost.spec.base import Spec


class Match(Spec):
    """When a table's row means this stack: every list that isn't empty must hold. Text is compared lower-case."""

    framework: tuple[str, ...] = ()  # the row's framework contains one of these
    architecture: tuple[str, ...] = ()  # the GPU's architecture is one of these
    sharding: tuple[str, ...] = ()  # the row's sharding contains one of these


class Seen(Spec):
    """A workload with its micro-batch that runs were calibrated on, and what the stack's other properties leave
    over: measured / modelled time, None of runs that waited for the host.

    Of those there is the time that the host took, and where a workload has any, its other runs' `compute` is over
    the modelled time of the device alone.
    """

    key: dict[str, int | str]  # the workload's dimensions
    micro_batch: int = Field(ge=1)
    runs: int = Field(ge=1)
    compute: PositiveFloat | None = None  # of forward and backward
    optimizer: PositiveFloat | None = None
    host_s: PositiveFloat | None = None  # to issue forward and backward of one micro-batch
    host_once_s: NonNegativeFloat | None = None  # to issue what an iteration does once


class Stack(Spec):
    """Kernels, fusion, launch cost, overlap and state layout of a training framework.

    Times are seconds, `*_bytes` are bytes of memory traffic for each element of what they name.
    """

    name: str
    description: str
    match: Match = Match()
    source: str
    calibration: str | None = None
    calibrated_range: dict[str, tuple[float, float]] = {}

    # attention
    attention: Literal["fused", "unfused"]
    attention_work: float = Field(default=1.0, gt=0, le=1)  # share of the score matrix computed when causal
    attention_efficiency: float = Field(gt=0, le=1.5)  # of what a large matrix product reaches
    attention_bytes_forward: NonNegativeFloat = 0.0  # for each score; fused attention never writes them
    attention_bytes_backward: NonNegativeFloat = 0.0
    softmax_needs_multiple_of: int = Field(default=1, ge=1)  # heads x micro-batch that the fused softmax takes
    matrix_efficiency: float = Field(default=1.0, gt=0, le=1.3)  # this stack's products relative to the GPU's best

    low_precision_efficiency: float = Field(default=0.75, gt=0, le=1)  # of FP8/FP4 products, scaling included

    # element-wise kernels
    hidden_bytes: NonNegativeFloat  # for each token and hidden feature, forward; backward moves twice that
    sharded_bytes: NonNegativeFloat  # for each token and MLP feature / 4, split by tensor parallelism

    # launch cost on the host, for each layer and micro-batch
    host_forward_s: NonNegativeFloat
    host_backward_s: NonNegativeFloat
    host_collective_s: NonNegativeFloat = 0.0
    host_masked: PositiveFloat = 1.0  # launch cost of layers with a padding mask (BERT, T5) over causal ones
    host_softmax_fallback_s: NonNegativeFloat = 0.0
    # the same of all layers, where runs told: an iteration takes at least this. While the device waits for the
    # network the host goes on, but no further ahead than `run_ahead_s` (None: as far as it comes)
    host_issue_s: NonNegativeFloat = 0.0
    host_issue_once_s: NonNegativeFloat = 0.0  # for an iteration
    run_ahead_s: NonNegativeFloat | None = None
    host_shard_s: NonNegativeFloat = 0.0  # to gather a unit of ZeRO-3 and give it up again
    host_jitter: NonNegativeFloat = 0.0  # a host's pace from iteration to iteration: its deviation over its mean
    host_sharpness: float = Field(default=4.0, ge=1, le=50)  # exponent of the smooth maximum of host and device

    # vocabulary layer and embedding
    vocabulary_bytes: NonNegativeFloat  # for each logit, forward and backward
    vocabulary_efficiency: float = Field(default=1.0, gt=0, le=1)  # of a product with as long a side
    vocabulary_padded: Literal["always", "tensor_parallel"] = "always"
    unaligned_efficiency: float = Field(default=0.35, gt=0, le=1)  # where the vocabulary is not padded
    host_vocabulary_s: NonNegativeFloat = 0.0
    embedding_bytes: NonNegativeFloat = 30.0

    recompute: Literal["none", "selective", "full"] = "none"  # where nothing is said
    # what `selective` recomputation repeats, as shares of forward
    selective_attention: float = Field(default=1.0, ge=0, le=1)  # of the attention core
    selective_rest: float = Field(default=0.0, ge=0, le=1)  # of everything else

    # once an iteration
    optimizer_bytes: NonNegativeFloat  # for each parameter that a rank updates
    iteration_s: NonNegativeFloat = 0.0
    gradient_sync_s: NonNegativeFloat = 0.0  # flattening, unscaling, synchronizing around gradient all-reduce

    # communication
    gradient_bytes: PositiveFloat = 2.0
    sync_every_micro_batch: bool = False
    zero2_gathers: Literal["micro_batch", "iteration"] = (
        "micro_batch"  # FSDP's way, or after the step as in ZeRO-1
    )
    root_gathered_once: bool = False  # ZeRO-3: the unit of a tied embedding stays from forward to backward
    tied_sync_sharded: bool = False  # with ZeRO stages all-reduce a tied embedding's shard, not all of it
    sequence_gathers_again: bool = False  # backward gathers a split linear's input again, and nothing hides that
    sequence_parallel: bool = False  # where tensor parallelism is used and nothing else is said
    data_parallel_overlap: float = Field(default=0.0, ge=0, le=1)
    # how much longer compute takes for a second of communication that it hides
    data_parallel_contention: float = Field(default=0.0, ge=0, lt=1)
    shard_contention: float = Field(default=0.0, ge=0, lt=1)
    shard_messages: PositiveFloat = 1.0  # collectives for each layer's parameters in ZeRO-3
    shard_overlap: float = Field(default=0.8, ge=0, le=1)
    scatter_overlap: float | None = Field(default=None, ge=0, le=1)  # of ZeRO-3's reduce-scatters; else the same
    collective_sync_s: NonNegativeFloat = (
        0.0  # ranks of a tensor-parallel collective start apart: for each further
    )
    tensor_overlap: float = Field(default=0.0, ge=0, le=1)
    pipeline_exposed: NonNegativeFloat = 1.0  # transfers between stages that compute does not hide, for each of 2
    pipeline_rendezvous: bool = False  # a transfer begins when its receiver waits for it: none hides
    pipeline_split: bool = False  # tensor ranks each send their share and gather it on arrival
    straggler: NonNegativeFloat = 0.0  # share of compute by which the slowest of n nodes lags, for each log2(n)

    # memory, for each parameter a rank holds
    weight_bytes: PositiveFloat = 2.0
    gradient_state_bytes: PositiveFloat = 4.0
    optimizer_state_bytes: PositiveFloat = 12.0
    logit_state_bytes: PositiveFloat = 8.0
    memory_overhead_bytes: NonNegativeFloat = 1.5e9  # CUDA context, NCCL buffers, cuBLAS workspace
    memory_fragmentation: float = Field(default=1.05, ge=1)  # reserved over allocated

    # how far predictions lie from measurements that were not fitted
    spread: float = Field(default=0.15, gt=0, le=5)  # 90 % of |log(predicted / measured)| lies below
    seen: tuple[Seen, ...] = ()
    seen_spread: float | None = Field(default=None, gt=0, le=5)  # for workloads seen, from runs of theirs
