"""What the model's formulas read: numbers, or arrays of one shape with an element for each configuration.

The scalar and the vectorised path are the same code: every function takes these records, whose fields are
floats or float64 arrays that broadcast together, and returns floats or arrays. Times are seconds here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Number = Any
"""A float, or a float64 array of shape (configurations,)."""

RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL = 0.0, 1.0, 2.0


@dataclass(slots=True)
class Shape:
    """A transformer's dimensions. `query` and `key_value` are heads x head size."""

    layers: Number
    hidden: Number
    heads: Number
    query: Number
    key_value: Number
    ffn: Number
    mlp_matrices: Number  # 2, or 3 where gated
    vocab: Number
    sequence: Number
    layer_parameters: Number  # of one layer, all experts
    embedding_parameters: Number  # of the token embedding
    other_parameters: Number  # of the untied head, positions, norms
    causal: Number = 1.0
    experts: Number = 1.0
    top_k: Number = 1.0
    expert_parameters: Number = 0.0  # of one layer's experts
    decoder_layers: Number = 0.0  # with cross attention (T5)
    decoder_sequence: Number = 0.0
    decoder_layer_parameters: Number = 0.0
    tied: Number = 1.0  # the head is the embedding

    @property
    def parameters(self) -> Number:
        return (
            self.layers * self.layer_parameters
            + self.decoder_layers * self.decoder_layer_parameters
            + self.embedding_parameters
            + self.other_parameters
        )


@dataclass(slots=True)
class Layout:
    """How the model is spread and fed. `accumulation` counts micro-batches for each iteration and rank."""

    tensor: Number
    pipeline: Number
    data: Number
    micro_batch: Number
    accumulation: Number
    virtual: Number = 1.0
    context: Number = 1.0
    expert: Number = 1.0
    sharding: Number = 0.0  # ZeRO stage, 0 to 3
    bucketed: Number = 0.0  # gradients leave while backward goes on
    node_sharding: Number = 0.0  # hybrid: shards inside a node, replicas between nodes
    sequence_parallel: Number = 0.0
    recompute: Number = RECOMPUTE_NONE
    gpipe: Number = 0.0
    gradient_bytes: Number = 0.0  # 0: the stack's
    exchanged: Number = 0.0  # gradients are summed by an all-to-all and an all-gather (8 bits)
    factored: Number = 0.0  # gradients are summed by two all-reduces of half the bytes (PowerSGD)
    compression_bytes: Number = 0.0  # memory traffic of turning a gradient into what is sent, and back
    bucket_bytes: Number = 25.0 * 2**20
    pipeline_first: Number = 0.0  # ranks run pipeline, data, context, tensor instead of the reverse

    @property
    def world(self) -> Number:
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def tensor_stride(self) -> Number:
        """Ranks between neighbours of a tensor-parallel group."""
        if not has(self.pipeline_first > 0):
            return 1.0
        return 1 + self.pipeline_first * (self.pipeline * self.data * self.context - 1)

    @property
    def data_stride(self) -> Number:
        if not has(self.pipeline_first > 0):
            return self.tensor
        return self.tensor + self.pipeline_first * (self.pipeline - self.tensor)

    @property
    def stage_stride(self) -> Number:
        """Ranks between neighbouring stages."""
        stage = self.tensor * self.data * self.context
        if not has(self.pipeline_first > 0):
            return stage
        return stage + self.pipeline_first * (1 - stage)


@dataclass(slots=True)
class Machine:
    """A GPU under a software stack, with its links: floats only (one machine, many configurations)."""

    peak_flops: float
    attention_peak_flops: float  # of the format that attention and the vocabulary layer use
    memory_Bps: float
    memory_bytes: float
    matrix_efficiency: float
    matrix_traffic: float
    memory_efficiency: float
    power_throttle: float
    attention_efficiency: float
    gpus_per_node: float
    intra_Bps: float
    intra_efficiency: float
    intra_latency_s: float
    intra_step_s: float
    intra_half_bytes: float
    node_Bps: float  # all NICs of a node, one direction
    nics_per_node: float
    inter_efficiency: float
    inter_latency_s: float
    inter_step_s: float
    inter_half_bytes: float
    inter_shared: float
    two_node_tree: float  # wirecost.model.nccl.tree_share
    stack: Any  # wirecost.spec.Stack or anything with its attributes
    element_bytes: float = 2.0
    activation_scale: float = 1.0  # 2 where activations take four bytes
    gpu_name: str = ""
    cores: Any = None  # wirecost.spec.Cores where ranks share processor cores
    curves: tuple[Any, ...] = ()  # measured collectives: wirecost.spec.efficiency.CollectiveEfficiency


def where(condition: Number, yes: Number, no: Number) -> Number:
    """`np.where` that keeps plain floats plain."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    return np.where(condition, yes, no)


def flag(condition: Number) -> Number:
    """1.0 where the condition holds, 0.0 elsewhere: multiplying by it is much cheaper than `np.where`."""
    return condition * 1.0


def blend(share: Number, yes: Number, no: Number) -> Number:
    """`yes` where `share` is 1, `no` where it is 0: `np.where` for finite numbers, in half its time."""
    return no + share * (yes - no)


def has(condition: Number) -> bool:
    """Whether any configuration meets the condition: branches that none needs cost nothing."""
    return bool(condition) if isinstance(condition, bool | np.bool_) else bool(np.any(condition))


def as_array(values: Any) -> npt.NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
