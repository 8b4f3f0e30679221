"""Memory of the fullest rank: weights, gradients, optimizer, activations in flight, logits, and what isn't
tensors.

Activations for each layer follow Korthikanti et al. 2022 (arXiv:2205.05198, equations 1 to 4, for two bytes):
s b h (10 + 24/t + 5 a s / (h t)), all of it over t with sequence parallelism, without the last term where
attention is recomputed, and 2 s b h where everything is. With fused attention and without dropout a layer keeps
the inputs and outputs of its norms, queries, keys, values and the attention's output, and the MLP's results
between its products (both inputs and the output of a gated activation, of which one kernel computes the product).
1F1B holds up to p micro-batches on the first stage (section 4.2.3), interleaving p (1 + (p - 1)/(p v)), GPipe all
of them (arXiv:1811.06965).

The memory is an interval, because a plan doesn't state everything that decides it. The upper end (`total`) has
the formats that the stack takes by default, and reserves more than it allocates. The lower end (`least`) has the
smallest formats that the stack offers, keeps the inputs of products in the format of the products (one byte in
FP8, as DeepSeek-V3 does, arXiv:2412.19437, section 3.3.3), doesn't keep the outputs of experts (Megatron-Core 0.13
weights tokens before the second product of an expert), and reserves what it allocates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.flops import expert_load
from wirecost.costmodel.inputs import RECOMPUTE_FULL, RECOMPUTE_SELECTIVE, Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has, where
from wirecost.costmodel.pipeline import ends_are_shorter
from wirecost.costmodel.sharding import state_shards

LEAST_OVERHEAD_BYTES = 0.5e9
"""Lower end of the memory in bytes that is not tensors: a CUDA context. With it the measured memory of all 14 runs
of DLPerf without pipelines (V100) lies in the interval."""


@dataclass(slots=True)
class Memory:
    """Bytes on the fullest rank. The parts sum to `total`, the upper end of the interval; `least` is its lower
    end."""

    weights: Number
    gradients: Number
    optimizer: Number
    activations: Number
    logits: Number
    overhead: Number
    least: Number

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
    mlp, copies = _mlp_widths(shape, layout)
    attention = 4 * shape.query + 4 * shape.key_value
    if machine.stack.attention.kind == "fused":
        norms = 8 * h  # input and output of both norms
        linear = tokens * (norms / split + (2 * shape.mlp_matrices * mlp + 4 * copies * h + attention) / t)
        if keys is not None:
            linear = linear + tokens * (4 * h / split + attention / t)
        if has(shape.latent_width > 0):
            linear = linear + tokens * 2 * shape.latent_width / split
        if has(layout.recompute == RECOMPUTE_SELECTIVE):
            kept = _selectively_kept(tokens, mlp, shape, layout, machine)
            linear = where(layout.recompute == RECOMPUTE_SELECTIVE, np.minimum(kept, linear), linear)
        return linear * machine.activation_scale
    # 24 s b h / t of the paper is 8 for attention and 16 for an MLP of width 4 h: scaled to other widths.
    linear = tokens * (10 * h / split + (4 * (shape.mlp_matrices - 1) * mlp + 4 * copies * h + attention) / t)
    scores = 5 * layout.micro_batch * shape.heads * sequence * sequence / layout.context / t
    if keys is not None:
        linear = linear + tokens * (5 * h / split + attention / t)
        scores = scores + 5 * layout.micro_batch * shape.heads * sequence * keys / layout.context / t
    kept = 1 - flag(layout.recompute >= RECOMPUTE_SELECTIVE)
    return (linear + kept * scores) * machine.activation_scale


def _mlp_widths(shape: Shape, layout: Layout) -> tuple[Number, Number]:
    """Returns the width of the MLPs that each token passes in a layer, and the copies of it for experts, in the
    mean over layers with and without experts."""
    if not has(shape.moe_share > 0):
        return shape.ffn, 0.0
    copies = shape.moe_share * shape.top_k * expert_load(shape, layout)
    experts = (copies + shape.moe_share * shape.shared_experts) * shape.ffn
    dense = (1 - shape.moe_share) * shape.dense_ffn
    return where(shape.moe_share > 0, experts + dense, shape.ffn), copies


def _selectively_kept(tokens: Number, mlp: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Returns the bytes that a layer keeps with selective recomputation and fused attention: its input, the
    attention's output, and the results of the products that are not repeated. A stack that repeats attention alone
    keeps all, because fused attention never writes its scores."""
    repeated = machine.stack.recomputation
    if repeated.rest <= 0:
        return tokens * np.inf
    split = 1 + layout.sequence_parallel * (layout.tensor - 1)
    output = 0.0 if repeated.attention >= 1 else 2 * shape.query
    products = shape.query + 2 * shape.key_value + 2 * shape.hidden + (shape.mlp_matrices - 1) * mlp
    kept = output + (1 - repeated.rest) * 2 * products
    return tokens * (2 * shape.hidden / split + kept / layout.tensor)


def least_layer_activation_bytes(
    sequence: Number, keys: Number | None, shape: Shape, layout: Layout, machine: Machine
) -> Number:
    """Returns the least that one layer may keep, as `layer_activation_bytes` counts it: inputs of products have
    the format of the products, and outputs of experts are not kept."""
    usual = layer_activation_bytes(sequence, keys, shape, layout, machine)
    if machine.stack.attention.kind != "fused":
        return usual
    saved = 2 - machine.product_bytes  # of each input of a product
    mlp, copies = _mlp_widths(shape, layout)
    split = 1 + layout.sequence_parallel * (layout.tensor - 1)
    # Both norms' outputs, the input of the MLP's last product, and what experts receive. Attention keeps its own
    # output in two bytes, beside the smaller copy that the product behind it keeps.
    smaller = saved * (2 * shape.hidden / split + (mlp + copies * shape.hidden) / layout.tensor)
    copied = where(saved > 0, machine.product_bytes * shape.query / layout.tensor, 0.0)
    unweighted = 2 * copies * shape.hidden / layout.tensor
    tokens = layout.micro_batch * sequence / layout.context
    less = np.maximum(smaller - copied, 0.0) + unweighted
    none = flag(layout.recompute != RECOMPUTE_SELECTIVE)
    return usual - none * tokens * less * machine.activation_scale


LayerBytes = Callable[[Number, Number | None, Shape, Layout, Machine], Number]
"""Returns the bytes that a layer keeps, as `layer_activation_bytes` does."""


def memory(parameters: Number, experts: Number, shape: Shape, layout: Layout, machine: Machine) -> Memory:
    """Returns the memory of the fullest rank that holds `parameters` (before ZeRO divides them), of them
    `experts`."""
    costs = machine.stack.memory
    shards = state_shards(layout, machine)
    sharded = parameters / shards
    if has(experts > 0):
        sharded = (parameters - experts) / shards + experts / np.maximum(shards / layout.expert, 1.0)
    weights = costs.weight_bytes * where(layout.sharding >= 3, sharded, parameters)
    if costs.weight_bytes > 2:
        # The weights are FP32 masters. ZeRO-1 and ZeRO-2 shard these, and compute with whole weights of the format
        # of the products (arXiv:1910.02054, section 5; FSDP's SHARD_GRAD_OP).
        whole = machine.element_bytes * parameters + costs.weight_bytes * sharded
        weights = where((layout.sharding > 0) & (layout.sharding < 3) & (shards > 1), whole, weights)
    if has(layout.secondary > 0):
        # hpZ: a second copy, divided over the ranks of the node.
        inside = np.minimum(layout.data * layout.context, np.minimum(machine.gpus_per_node, layout.world))
        weights = weights + where(layout.secondary > 0, machine.element_bytes * parameters / inside, 0.0)
    gradients = costs.gradient_state_bytes * where(layout.sharding >= 2, sharded, parameters) * layout.trained
    optimizer = costs.optimizer_state_bytes * where(layout.sharding >= 1, sharded, parameters) * layout.trained
    if has(layout.dualpipe > 0):
        # Two copies of a stage's parameters (arXiv:2412.19437, table 2).
        copies = 1 + flag(layout.dualpipe > 0)
        weights, gradients = copies * weights, copies * gradients
    in_flight = _in_flight(shape, layout)
    usual = layer_activation_bytes, costs.logit_state_bytes
    activations, logits = _kept(*usual, in_flight, shape, layout, machine)
    gathered = where(layout.sharding >= 3, 2 * shape.layer_parameters * costs.weight_bytes / layout.tensor, 0.0)
    fragments = (costs.fragmentation - 1) * (activations + logits + gathered)
    overhead = gathered + fragments + costs.overhead_bytes
    fewer = least_layer_activation_bytes, costs.least_logit_bytes
    fewest, smallest = _kept(*fewer, in_flight, shape, layout, machine)
    least = weights + gradients * (costs.least_gradient_bytes / costs.gradient_state_bytes)
    least = least + optimizer * (costs.least_optimizer_bytes / costs.optimizer_state_bytes)
    least = least + fewest + smallest + gathered + min(costs.overhead_bytes, LEAST_OVERHEAD_BYTES)
    return Memory(weights, gradients, optimizer, activations, logits, overhead, least)


def _kept(
    layer_bytes: LayerBytes,
    logit_bytes: float,
    in_flight: Number,
    shape: Shape,
    layout: Layout,
    machine: Machine,
) -> tuple[Number, Number]:
    """Returns the bytes of activations of all micro-batches in flight on the first stage, and what the logits of
    the last stage need beyond it."""
    stage_layers = np.ceil((shape.layers + shape.decoder_layers) / layout.pipeline)
    decoders = stage_layers * shape.decoder_layers / (shape.layers + shape.decoder_layers)
    encoders = stage_layers - decoders
    full = layout.recompute == RECOMPUTE_FULL
    kept_input = 2 * layout.micro_batch * shape.hidden / layout.context
    kept_input = kept_input / (1 + layout.sequence_parallel * (layout.tensor - 1))
    own = layer_bytes(shape.sequence, None, shape, layout, machine)
    per_micro_batch = encoders * where(full, kept_input * shape.sequence, own)
    transient = where(full, own, 0.0)
    if has(shape.decoder_layers > 0):
        other = layer_bytes(shape.decoder_sequence, shape.sequence, shape, layout, machine)
        per_micro_batch = per_micro_batch + decoders * where(full, kept_input * shape.decoder_sequence, other)
    p, v = layout.pipeline, layout.virtual
    activations = per_micro_batch * in_flight + transient
    tokens = where(shape.decoder_layers > 0, shape.decoder_sequence, shape.sequence) * layout.micro_batch
    logits = tokens / layout.context * shape.vocab / layout.tensor * logit_bytes
    logits = logits * shape.head_share
    if has(shape.predicted > 0):
        # The modules' layers and logits are on the last stage.
        module = where(
            full, kept_input * shape.sequence, layer_activation_bytes(shape.sequence, None, shape, layout, machine)
        )
        logits = logits * (1 + shape.predicted) + shape.predicted * module
    if has(p > 1):
        # The last stage has the logits, but fewer micro-batches in flight than the first.
        own = np.minimum(((v - 1) * p + 1) / v, layout.accumulation)
        own = where(layout.gpipe > 0, layout.accumulation, own)
        last = per_micro_batch * own + transient + logits
        logits = where(p > 1, np.maximum(last - activations, 0.0), logits)
    return activations, logits


def _in_flight(shape: Shape, layout: Layout) -> Number:
    """Returns how many micro-batches of a full stage's activations the fullest stage keeps at once."""
    p, v, m = layout.pipeline, layout.virtual, layout.accumulation
    in_flight = np.minimum(p, m) * where(v > 1, 1 + (p - 1) / (p * v), 1.0)
    shorter = ends_are_shorter(shape.layers + shape.decoder_layers, layout)
    if has(shorter):
        # The first stage has one layer less, and the second one fewer micro-batches in flight.
        layers = np.ceil((shape.layers + shape.decoder_layers) / p)
        second = in_flight - where(v > 1, 2 / v, flag(m >= p))
        in_flight = where(shorter, np.maximum(in_flight * (1 - 1 / layers), second), in_flight)
    in_flight = where(layout.gpipe > 0, m, in_flight)
    if has(layout.zero_bubble > 1):
        in_flight = where(layout.zero_bubble > 1, np.minimum(2 * p - 1, m), in_flight)
    if has(layout.dualpipe > 0):
        # One micro-batch more in flight (arXiv:2412.19437, table 2).
        in_flight = where(layout.dualpipe > 0, np.minimum(p + 1, m), in_flight)
    return in_flight
