"""What a software stack costs, by what causes it. Each record holds a part of a stack's YAML keys.

A field's alias is its key in a stack's YAML file, where all keys stand beside each other.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveFloat, model_validator

from wirecost.spec.base import Spec


class Costs(Spec):
    """A part of a stack. Its fields may be given by their names or by their YAML keys."""

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        # `Stack` sorts the keys into its records and refuses what belongs to none of them.
        return data

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Returns the name of each field by its YAML key."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}


class AttentionKernels(Costs):
    """Kernels between the attention's projections. `bytes_*` are memory traffic for each score."""

    kind: Literal["fused", "unfused"] = Field(alias="attention")
    work: float = Field(default=1.0, gt=0, le=1, alias="attention_work")
    """Share of the score matrix that is computed when attention is causal."""
    efficiency: float = Field(gt=0, le=1.5, alias="attention_efficiency")
    """Rate relative to that of a large matrix product."""
    bytes_forward: NonNegativeFloat = Field(default=0.0, alias="attention_bytes_forward")
    """Fused attention never writes its scores."""
    bytes_backward: NonNegativeFloat = Field(default=0.0, alias="attention_bytes_backward")
    softmax_needs_multiple_of: int = Field(default=1, ge=1)
    """The fused softmax takes only multiples of this of heads x micro-batch."""


class LayerKernels(Costs):
    """The other kernels of a layer. `*_bytes` are memory traffic of forward; backward moves twice that."""

    matrix_efficiency: float = Field(default=1.0, gt=0, le=1.3)
    """Rate of this stack's matrix products relative to the GPU's best."""
    low_precision_efficiency: float = Field(default=0.75, gt=0, le=1)
    """Rate of FP8 and FP4 products relative to that of other formats' share of their peak, scaling included."""
    hidden_bytes: NonNegativeFloat
    """For each token and hidden feature."""
    sharded_bytes: NonNegativeFloat
    """For each token and MLP feature / 4; tensor parallelism splits it."""


class HostCosts(Costs):
    """Time that the host takes to launch work, in seconds.

    `forward_s` and `backward_s` are those of one layer and micro-batch. Where runs determined the time of all
    layers, `issue_s` is that of a micro-batch and an iteration takes at least that. While the device waits for the
    network the host goes on, but no further ahead than `run_ahead_s` (None: without a limit).
    """

    forward_s: NonNegativeFloat = Field(alias="host_forward_s")
    backward_s: NonNegativeFloat = Field(alias="host_backward_s")
    collective_s: NonNegativeFloat = Field(default=0.0, alias="host_collective_s")
    masked: PositiveFloat = Field(default=1.0, alias="host_masked")
    """Launch time of a layer with a padding mask (BERT, T5) relative to one with causal attention."""
    softmax_fallback_s: NonNegativeFloat = Field(default=0.0, alias="host_softmax_fallback_s")
    vocabulary_s: NonNegativeFloat = Field(default=0.0, alias="host_vocabulary_s")
    issue_s: NonNegativeFloat = Field(default=0.0, alias="host_issue_s")
    issue_once_s: NonNegativeFloat = Field(default=0.0, alias="host_issue_once_s")
    """For each iteration."""
    run_ahead_s: NonNegativeFloat | None = None
    shard_s: NonNegativeFloat = Field(default=0.0, alias="host_shard_s")
    """To gather a unit of ZeRO-3 and give it up again."""
    jitter: NonNegativeFloat = Field(default=0.0, alias="host_jitter")
    """Standard deviation of the host's time from iteration to iteration over its mean."""
    sharpness: float = Field(default=4.0, ge=1, le=50, alias="host_sharpness")
    """Exponent of the smooth maximum of the host's and the device's time."""


class VocabularyKernels(Costs):
    """The vocabulary layer and the embedding. `bytes` is memory traffic for each logit, both passes together."""

    bytes: NonNegativeFloat = Field(alias="vocabulary_bytes")
    efficiency: float = Field(default=1.0, gt=0, le=1, alias="vocabulary_efficiency")
    """Rate relative to that of a large matrix product."""
    padded: Literal["always", "tensor_parallel"] = Field(default="always", alias="vocabulary_padded")
    unaligned_efficiency: float = Field(default=0.35, gt=0, le=1)
    """Rate where the vocabulary is not padded to a multiple of 8, relative to where it is."""
    embedding_bytes: NonNegativeFloat = 30.0


class Recomputation(Costs):
    """What is recomputed where nothing is said, and what `selective` repeats, as shares of forward."""

    default: Literal["none", "selective", "full"] = Field(default="none", alias="recompute")
    attention: float = Field(default=1.0, ge=0, le=1, alias="selective_attention")
    rest: float = Field(default=0.0, ge=0, le=1, alias="selective_rest")


class IterationCosts(Costs):
    """What an iteration does once."""

    optimizer_bytes: NonNegativeFloat
    """Memory traffic for each parameter that a rank updates."""
    once_s: NonNegativeFloat = Field(default=0.0, alias="iteration_s")
    straggler: NonNegativeFloat = 0.0
    """Share of compute by which the slowest of n nodes lags, for each doubling of n."""


class DataParallelCosts(Costs):
    """Gradient synchronisation and sharding. An overlap is the share of what fits under compute that is hidden; a
    contention is how much longer compute takes for each second of communication that it hides."""

    gradient_bytes: PositiveFloat = 2.0
    gradient_sync_s: NonNegativeFloat = 0.0
    """Flattening, unscaling and synchronising around the collective."""
    every_micro_batch: bool = Field(default=False, alias="sync_every_micro_batch")
    zero2_gathers: Literal["micro_batch", "iteration"] = "micro_batch"
    """ZeRO-2 gathers parameters in each micro-batch as FSDP does, or once after the step as ZeRO-1 does."""
    root_gathered_once: bool = False
    """ZeRO-3: the unit of a tied embedding stays from forward to backward."""
    overlap: float = Field(default=0.0, ge=0, le=1, alias="data_parallel_overlap")
    contention: float = Field(default=0.0, ge=0, lt=1, alias="data_parallel_contention")
    shard_contention: float = Field(default=0.0, ge=0, lt=1)
    shard_messages: PositiveFloat = 1.0
    """Collectives for each layer's parameters in ZeRO-3."""
    shard_overlap: float = Field(default=0.8, ge=0, le=1)
    scatter_overlap: float | None = Field(default=None, ge=0, le=1)
    """Of ZeRO-3's reduce-scatters; None: `shard_overlap`."""


class TensorParallelCosts(Costs):
    """Collectives of tensor and sequence parallelism."""

    collective_sync_s: NonNegativeFloat = 0.0
    """By how much later the ranks of a collective start, for each further rank."""
    overlap: float = Field(default=0.0, ge=0, le=1, alias="tensor_overlap")
    sequence_parallel: bool = False
    """Whether sequence parallelism is used where nothing else is said."""
    gathers_again: bool = Field(default=False, alias="sequence_gathers_again")
    """Whether backward gathers a split linear's input again, which nothing hides."""


class PipelineCosts(Costs):
    """Transfers between pipeline stages."""

    exposed: NonNegativeFloat = Field(default=1.0, alias="pipeline_exposed")
    """Transfers that compute does not hide, of each two."""
    rendezvous: bool = Field(default=False, alias="pipeline_rendezvous")
    """Whether a transfer begins only when its receiver waits for it, so that none is hidden."""
    split: bool = Field(default=False, alias="pipeline_split")
    """Whether tensor-parallel ranks each send their share and gather it on arrival."""
    tied_sync_sharded: bool = False
    """Whether ZeRO stages all-reduce a shard of a tied embedding instead of all of it."""


class MemoryCosts(Costs):
    """Bytes of state for each parameter that a rank holds, and what is not tensors."""

    weight_bytes: PositiveFloat = 2.0
    gradient_state_bytes: PositiveFloat = 4.0
    optimizer_state_bytes: PositiveFloat = 12.0
    logit_state_bytes: PositiveFloat = 8.0
    overhead_bytes: NonNegativeFloat = Field(default=1.5e9, alias="memory_overhead_bytes")
    """CUDA context, NCCL buffers, cuBLAS workspace."""
    fragmentation: float = Field(default=1.05, ge=1, alias="memory_fragmentation")
    """Reserved over allocated memory."""


class WorkloadCorrection(Spec):
    """The residual of one workload and micro-batch that runs were calibrated on: measured over modelled time.

    Runs that waited for the host have no such ratio (None) but the time that the host took; where a workload has
    such runs, `compute` of its other runs is relative to the modelled time of the device alone.
    """

    key: dict[str, int | str]
    """The workload's dimensions (`wirecost.costmodel.workload_correction.key_of`)."""
    micro_batch: int = Field(ge=1)
    runs: int = Field(ge=1)
    compute: PositiveFloat | None = None
    """Of forward and backward."""
    optimizer: PositiveFloat | None = None
    host_s: PositiveFloat | None = None
    """To issue forward and backward of one micro-batch."""
    host_once_s: NonNegativeFloat | None = None
    """To issue what an iteration does once."""


class Accuracy(Costs):
    """What the stack was calibrated on, and how far predictions lie from measurements that were not fitted."""

    calibrated_range: dict[str, tuple[float, float]] = {}
    spread: float = Field(default=0.15, gt=0, le=5)
    """90 % quantile of |log(predicted / measured)|."""
    workload_corrections: tuple[WorkloadCorrection, ...] = ()
    workload_correction_spread: float | None = Field(default=None, gt=0, le=5)
    """The same quantile for workloads with a correction, from runs that predict each other."""
