"""Memory of the fullest rank: weights, gradients, optimizer, activations in flight, logits, and what isn't
tensors.

Activations for each layer follow Korthikanti et al. 2022 (arXiv:2205.05198, equations 1 to 4, for two bytes):
s b h (10 + 24/t + 5 a s / (h t)), all of it over t with sequence parallelism, without the last term where
attention is fused or recomputed, and 2 s b h where everything is. 1F1B holds up to p micro-batches on the first
stage (section 4.2.3), interleaving p (1 + (p - 1)/(p v)), GPipe all of them (arXiv:1811.06965).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.inputs import RECOMPUTE_FULL, RECOMPUTE_SELECTIVE, Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has, where


@dataclass(slots=True)
class Memory:
    """Bytes on the fullest rank."""

    weights: Number
    gradients: Number
    optimizer: Number
    activations: Number
    logits: Number
    overhead: Number

    @property
    def total(self) -> Number:
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.overhead


def layer_activation_bytes(
    sequence: Number, keys: Number | None, shape: Shape, layout: Layout, machine: Machine
) -> Number:
    """Returns the bytes that one layer keeps from forward to backward for one micro-batch where not everything is
    recomputed. `keys`: positions of cross attention, None without."""
    t = layout.tensor
    tokens = layout.micro_batch * sequence / layout.context
    split = 1 + layout.sequence_parallel * (t - 1)
    h = shape.hidden
    # 24 s b h / t of the paper is 8 for attention and 16 for an MLP of width 4 h: scaled to other widths.
    mlp = 4 * shape.top_k * shape.ffn * (shape.mlp_matrices - 1)
    attention = 4 * shape.query + 4 * shape.key_value
    linear = tokens * (10 * h / split + (mlp + attention) / t)
    scores = 5 * layout.micro_batch * shape.heads * sequence * sequence / layout.context / t
    if keys is not None:
        linear = linear + tokens * (5 * h / split + attention / t)
        scores = scores + 5 * layout.micro_batch * shape.heads * sequence * keys / layout.context / t
    kept: Number = 1 - flag(layout.recompute >= RECOMPUTE_SELECTIVE)
    if machine.stack.attention.kind == "fused":
        kept = 0.0
    return (linear + kept * scores) * machine.activation_scale


def memory(parameters: Number, shape: Shape, layout: Layout, machine: Machine) -> Memory:
    """Returns the memory of the fullest rank that holds `parameters` (before ZeRO divides them)."""
    costs = machine.stack.memory
    shards = where(layout.node_sharding > 0, np.minimum(layout.data, machine.gpus_per_node), layout.data)
    shards = shards * layout.context
    weights = parameters * costs.weight_bytes / where(layout.sharding >= 3, shards, 1.0)
    gradients = parameters * costs.gradient_state_bytes / where(layout.sharding >= 2, shards, 1.0)
    optimizer = parameters * costs.optimizer_state_bytes / where(layout.sharding >= 1, shards, 1.0)
    stage_layers = np.ceil((shape.layers + shape.decoder_layers) / layout.pipeline)
    decoders = stage_layers * shape.decoder_layers / (shape.layers + shape.decoder_layers)
    encoders = stage_layers - decoders
    full = layout.recompute == RECOMPUTE_FULL
    kept_input = 2 * layout.micro_batch * shape.hidden / layout.context
    kept_input = kept_input / (1 + layout.sequence_parallel * (layout.tensor - 1))
    own = layer_activation_bytes(shape.sequence, None, shape, layout, machine)
    per_micro_batch = encoders * where(full, kept_input * shape.sequence, own)
    transient = where(full, own, 0.0)
    if has(shape.decoder_layers > 0):
        other = layer_activation_bytes(shape.decoder_sequence, shape.sequence, shape, layout, machine)
        per_micro_batch = per_micro_batch + decoders * where(full, kept_input * shape.decoder_sequence, other)
    p, v = layout.pipeline, layout.virtual
    in_flight = np.minimum(p, layout.accumulation) * where(v > 1, 1 + (p - 1) / (p * v), 1.0)
    in_flight = where(layout.gpipe > 0, layout.accumulation, in_flight)
    activations = per_micro_batch * in_flight + transient
    tokens = where(shape.decoder_layers > 0, shape.decoder_sequence, shape.sequence) * layout.micro_batch
    logits = tokens / layout.context * shape.vocab / layout.tensor * costs.logit_state_bytes
    logits = where(p > 1, 0.0, logits)  # the last stage holds fewer micro-batches than the first
    gathered = where(layout.sharding >= 3, 2 * shape.layer_parameters * costs.weight_bytes / layout.tensor, 0.0)
    fragments = (costs.fragmentation - 1) * (activations + logits + gathered)
    return Memory(weights, gradients, optimizer, activations, logits, gathered + fragments + costs.overhead_bytes)
