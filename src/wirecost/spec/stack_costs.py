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
    """Whether one fused kernel computes attention, or several kernels that write the scores."""
    work: float = Field(default=1.0, gt=0, le=1, alias="attention_work")
    """Share of the score matrix that is computed when attention is causal."""
    efficiency: float = Field(gt=0, le=1.5, alias="attention_efficiency")
    """Rate of attention relative to that of a large matrix product."""
    bytes_forward: NonNegativeFloat = Field(default=0.0, alias="attention_bytes_forward")
    """Memory traffic of forward in bytes for each score. Fused attention never writes its scores."""
    bytes_backward: NonNegativeFloat = Field(default=0.0, alias="attention_bytes_backward")
    """Memory traffic of backward in bytes for each score."""
    softmax_needs_multiple_of: int = Field(default=1, ge=1)
    """Number of which heads x micro-batch must be a multiple for the fused softmax."""


class LayerKernels(Costs):
    """The other kernels of a layer. `*_bytes` are memory traffic of forward; backward moves twice that."""

    matrix_efficiency: float = Field(default=1.0, gt=0, le=1.3)
    """Rate of this stack's matrix products relative to those of a GPU that reaches 75 % of its peak. On other
    GPUs the losses are scaled alike, so no stack exceeds a peak."""
    low_precision_efficiency: float = Field(default=0.75, gt=0, le=1)
    """Rate of FP8 and FP4 products relative to that of other formats' share of their peak, scaling included."""
    hidden_bytes: NonNegativeFloat
    """Memory traffic of forward in bytes for each token and hidden feature."""
    sharded_bytes: NonNegativeFloat
    """Memory traffic of forward in bytes for each token and MLP feature / 4. Tensor parallelism splits it."""
    gated_bytes: NonNegativeFloat = 0.0
    """Further memory traffic of forward in bytes for each token and MLP feature / 4, those of the gate too, in a
    layer with a gated MLP: the gate, rotary positions, norms."""
    gaps_s: NonNegativeFloat = Field(default=0.0, alias="layer_gaps_s")
    """Time in seconds that passes between the kernels of a layer in forward, and twice that in backward. A layer
    with a gated MLP has `host_gated` times as many kernels."""
    expert_bytes: NonNegativeFloat = 16.0
    """Memory traffic of forward in bytes for each copy of a token for an expert and hidden feature: sorting the
    copies and adding the results reads and writes them twice each."""


class HostCosts(Costs):
    """Time that the host takes to launch work, in seconds.

    `forward_s` and `backward_s` are those of one layer and micro-batch. Where runs determined the time of all
    layers, `issue_s` is that of a micro-batch and an iteration takes at least that. While the device waits for the
    network the host goes on, but no further ahead than `run_ahead_s` (None: without a limit).
    """

    forward_s: NonNegativeFloat = Field(alias="host_forward_s")
    """Time in seconds to launch forward of one layer and micro-batch."""
    backward_s: NonNegativeFloat = Field(alias="host_backward_s")
    """Time in seconds to launch backward of one layer and micro-batch."""
    collective_s: NonNegativeFloat = Field(default=0.0, alias="host_collective_s")
    """Time in seconds to launch a tensor-parallel collective."""
    sequence_collective_s: NonNegativeFloat | None = Field(default=None, alias="host_sequence_collective_s")
    """Time in seconds to launch an all-gather or a reduce-scatter of sequence parallelism. None means that those
    of a layer take together as long as the layer's all-reduces without it, at `host_collective_s` each."""
    transfer_s: NonNegativeFloat | None = Field(default=None, alias="host_transfer_s")
    """Time in seconds to launch a transfer between pipeline stages. None is `host_collective_s`."""
    masked: PositiveFloat = Field(default=1.0, alias="host_masked")
    """Launch time of a layer with a padding mask (BERT, T5) relative to one with causal attention."""
    gated: PositiveFloat = Field(default=1.0, alias="host_gated")
    """Launch time of a layer with a gated MLP, as in a Llama, relative to one of a GPT."""
    experts: PositiveFloat = Field(default=2.0, alias="host_experts")
    """Launch time of a layer with experts relative to one with an MLP."""
    softmax_fallback_s: NonNegativeFloat = Field(default=0.0, alias="host_softmax_fallback_s")
    """Additional time in seconds for a layer that the fused softmax does not take."""
    vocabulary_s: NonNegativeFloat = Field(default=0.0, alias="host_vocabulary_s")
    """Time in seconds to launch the vocabulary layer of one micro-batch."""
    issue_s: NonNegativeFloat = Field(default=0.0, alias="host_issue_s")
    """Time in seconds to launch all layers of a micro-batch, where runs determined it."""
    issue_once_s: NonNegativeFloat = Field(default=0.0, alias="host_issue_once_s")
    """Time in seconds to launch what an iteration does once, where runs determined it."""
    run_ahead_s: NonNegativeFloat | None = None
    """Time in seconds that the host may be ahead of the device. None is no limit."""
    shard_s: NonNegativeFloat = Field(default=0.0, alias="host_shard_s")
    """Time in seconds to gather a unit of ZeRO-3 and to free it again."""
    jitter: NonNegativeFloat = Field(default=0.0, alias="host_jitter")
    """Standard deviation of the host's time from iteration to iteration over its mean."""
    sharpness: float = Field(default=4.0, ge=1, le=50, alias="host_sharpness")
    """Exponent of the smooth maximum of the host's and the device's time."""


LAUNCH_TIMES: tuple[str, ...] = (
    "forward_s",
    "backward_s",
    "collective_s",
    "sequence_collective_s",
    "transfer_s",
    "softmax_fallback_s",
    "vocabulary_s",
    "issue_s",
    "issue_once_s",
    "shard_s",
)
"""The times of `HostCosts`."""


class VocabularyKernels(Costs):
    """The vocabulary layer and the embedding. `bytes` is memory traffic for each logit, both passes together."""

    bytes: NonNegativeFloat = Field(alias="vocabulary_bytes")
    """Memory traffic in bytes for each logit, forward and backward together."""
    efficiency: float = Field(default=1.0, gt=0, le=1, alias="vocabulary_efficiency")
    """Rate of the vocabulary layer relative to that of a large matrix product."""
    padded: Literal["always", "tensor_parallel"] = Field(default="always", alias="vocabulary_padded")
    """Whether the vocabulary is padded always, or with tensor parallelism only."""
    unaligned_efficiency: float = Field(default=0.35, gt=0, le=1)
    """Rate where the vocabulary is not padded to a multiple of 8, relative to where it is."""
    embedding_bytes: NonNegativeFloat = 30.0
    """Memory traffic in bytes for each embedded token and hidden feature."""


class Recomputation(Costs):
    """What is recomputed where nothing is said, and what `selective` repeats, as shares of forward."""

    default: Literal["none", "selective", "full"] = Field(default="none", alias="recompute")
    """What is recomputed where a plan does not say it."""
    attention: float = Field(default=1.0, ge=0, le=1, alias="selective_attention")
    """Fraction of the attention kernels that `selective` recomputes."""
    rest: float = Field(default=0.0, ge=0, le=1, alias="selective_rest")
    """Fraction of all other work of forward that `selective` recomputes."""


class IterationCosts(Costs):
    """What an iteration does once."""

    optimizer_bytes: NonNegativeFloat
    """Memory traffic in bytes for each parameter that a rank updates."""
    once_s: NonNegativeFloat = Field(default=0.0, alias="iteration_s")
    """Time in seconds that an iteration takes for everything else."""
    straggler: NonNegativeFloat = 0.0
    """Share of compute by which the slowest of n nodes lags, for each doubling of n."""


class DataParallelCosts(Costs):
    """Gradient synchronisation and sharding. An overlap is the share of what fits under compute that is hidden; a
    contention is how much longer compute takes for each second of communication that it hides."""

    gradient_bytes: PositiveFloat = 2.0
    """Size in bytes of a gradient in collectives."""
    gradient_sync_s: NonNegativeFloat = 0.0
    """Time in seconds for flattening, unscaling and synchronising around the collective."""
    every_micro_batch: bool = Field(default=False, alias="sync_every_micro_batch")
    """Whether gradients are synchronised in each micro-batch instead of once."""
    zero2_gathers: Literal["micro_batch", "iteration"] = "micro_batch"
    """When ZeRO-2 gathers parameters: in each micro-batch as FSDP does, or once as ZeRO-1 does."""
    owned_tensors: bool = False
    """Whether ZeRO-1 gives whole tensors to ranks: each owner's gradients are reduced to it, and its parameters
    are broadcast, so that there are as many messages as owners."""
    buckets: Literal["plan", "megatron", "whole"] = "plan"
    """Size of a bucket of gradients where a plan doesn't state it: DDP's, or Megatron-Core's, which grows with the
    ranks. `whole` is DDP's in buckets of whole parameters, which are larger, as the engine fills them."""
    root_gathered_once: bool = False
    """Whether the unit of a tied embedding stays gathered from forward to backward in ZeRO-3, and an untied
    embedding and output layer are units like a layer."""
    overlap: float = Field(default=0.0, ge=0, le=1, alias="data_parallel_overlap")
    """Fraction of the gradient collectives that fit under compute which is hidden."""
    contention: float = Field(default=0.0, ge=0, lt=1, alias="data_parallel_contention")
    """Additional compute in seconds for each second of gradient collectives that it hides."""
    shard_contention: float = Field(default=0.0, ge=0, lt=1)
    """Additional compute in seconds for each second of ZeRO-3 collectives that it hides."""
    shard_messages: PositiveFloat = 1.0
    """Number of collectives for each layer's parameters in ZeRO-3."""
    shard_overlap: float = Field(default=0.8, ge=0, le=1)
    """Fraction of the ZeRO-3 collectives that fit under compute which is hidden."""
    shard_copy_bytes: NonNegativeFloat = 0.0
    """Memory traffic in bytes for each parameter and micro-batch with which ZeRO-3 copies what it gathers and
    scatters."""
    scatter_overlap: float | None = Field(default=None, ge=0, le=1)
    """The same fraction for ZeRO-3's reduce-scatters. None is `shard_overlap`."""


class TensorParallelCosts(Costs):
    """Collectives of tensor and sequence parallelism."""

    collective_sync_s: NonNegativeFloat = 0.0
    """Time in seconds by which a collective starts later for each further rank."""
    overlap: float = Field(default=0.0, ge=0, le=1, alias="tensor_overlap")
    """Fraction of the tensor-parallel collectives that fit under compute which is hidden."""
    experts_split: bool = True
    """Whether tensor-parallel ranks with sequence parallelism each dispatch their part of the tokens to
    experts."""
    sequence_parallel: bool = False
    """Whether sequence parallelism is used where a plan does not say it."""
    gathers_again: bool = Field(default=False, alias="sequence_gathers_again")
    """Whether backward gathers a split linear's input again, which nothing hides."""
    small_collectives: bool = False
    """Whether the small collectives of tensor parallelism are counted: the sum of the gradients of which each rank
    has a part, the routing of experts, the gradients of parameters that each rank has whole, and in a BERT's head
    those of masked tokens. Fitted stacks have their time in other properties."""


class PipelineCosts(Costs):
    """Transfers between pipeline stages."""

    exposed: NonNegativeFloat = Field(default=1.0, alias="pipeline_exposed")
    """Number of transfers, of each two, that compute does not hide."""
    rendezvous: bool = Field(default=False, alias="pipeline_rendezvous")
    """Whether a transfer begins only when its receiver waits for it, so that none is hidden."""
    split: bool = Field(default=False, alias="pipeline_split")
    """Whether tensor-parallel ranks each send their share and gather it on arrival."""
    tied_sync_sharded: bool = False
    """Whether ZeRO stages all-reduce a shard of a tied embedding instead of all of it."""


class MemoryCosts(Costs):
    """Bytes of state for each parameter that a rank holds, and what is not tensors."""

    weight_bytes: PositiveFloat = 2.0
    """Memory in bytes of the weights for each parameter."""
    gradient_state_bytes: PositiveFloat = 4.0
    """Memory in bytes of the gradients for each parameter."""
    optimizer_state_bytes: PositiveFloat = 12.0
    """Memory in bytes of the optimizer state for each parameter."""
    logit_state_bytes: PositiveFloat = 8.0
    """Memory in bytes for each logit."""
    overhead_bytes: NonNegativeFloat = Field(default=1.5e9, alias="memory_overhead_bytes")
    """Memory in bytes that is not tensors: CUDA context, NCCL buffers, cuBLAS workspace."""
    fragmentation: float = Field(default=1.05, ge=1, alias="memory_fragmentation")
    """Memory that is reserved over memory that is allocated."""
    least_gradient_state_bytes: PositiveFloat | None = None
    """`gradient_state_bytes` with the smallest format that the stack offers. None is the same."""
    least_optimizer_state_bytes: PositiveFloat | None = None
    """`optimizer_state_bytes` with the smallest formats that the stack offers. None is the same."""
    least_logit_state_bytes: PositiveFloat | None = None
    """`logit_state_bytes` with the smallest loss kernel that the stack offers. None is the same."""

    @property
    def least_gradient_bytes(self) -> float:
        """The least bytes of the gradients for each parameter."""
        return min(self.least_gradient_state_bytes or self.gradient_state_bytes, self.gradient_state_bytes)

    @property
    def least_optimizer_bytes(self) -> float:
        """The least bytes of the optimizer state for each parameter."""
        return min(self.least_optimizer_state_bytes or self.optimizer_state_bytes, self.optimizer_state_bytes)

    @property
    def least_logit_bytes(self) -> float:
        """The least bytes for each logit."""
        return min(self.least_logit_state_bytes or self.logit_state_bytes, self.logit_state_bytes)


class WorkloadCorrection(Spec):
    """The residual of one workload and micro-batch that runs were calibrated on: measured over modelled time.

    Runs that waited for the host have no such ratio (None) but the time that the host took; where a workload has
    such runs, `compute` of its other runs is relative to the modelled time of the device alone.
    """

    key: dict[str, int | str]
    """The workload's dimensions (`wirecost.costmodel.workload_correction.key_of`)."""
    micro_batch: int = Field(ge=1)
    """Micro-batch of the runs."""
    runs: int = Field(ge=1)
    """Number of runs."""
    compute: PositiveFloat | None = None
    """Measured over modelled time of forward and backward."""
    optimizer: PositiveFloat | None = None
    """Measured over modelled time of the optimizer."""
    host_s: PositiveFloat | None = None
    """Time in seconds to launch forward and backward of one micro-batch."""
    host_once_s: NonNegativeFloat | None = None
    """Time in seconds to launch what an iteration does once."""


class Accuracy(Costs):
    """What the stack was calibrated on, and how far predictions lie from measurements that were not fitted."""

    calibrated_range: dict[str, tuple[float, float]] = {}
    """Smallest and largest value of each dimension that the stack was calibrated on."""
    spread: float = Field(default=0.15, gt=0, le=5)
    """90 % quantile of |log(predicted / measured)| over runs that were not fitted."""
    workload_corrections: tuple[WorkloadCorrection, ...] = ()
    """Residuals of the workloads that runs were calibrated on."""
    workload_correction_spread: float | None = Field(default=None, gt=0, le=5)
    """The same quantile for workloads with a correction, from runs that predict each other."""
