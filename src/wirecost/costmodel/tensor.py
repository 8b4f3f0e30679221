"""Communication of tensor and sequence parallelism for a layer and for the vocabulary layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.collectives import Group, all_reduce_s, gather_s, group
from wirecost.costmodel.inputs import Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, blend, flag, has, where
from wirecost.costmodel.sharding import state_shards


@dataclass(slots=True)
class TensorTime:
    """Seconds on one rank for one micro-batch of forward; backward takes as much, and what it gathers again."""

    collective_s: Number  # one collective of a layer, less what is hidden
    activation_s: Number  # one collective of tokens x hidden at the ends of the model
    gather_s: Number = 0.0  # with sequence parallelism, one all-gather of tokens x hidden
    sum_s: Number = 0.0  # one all-reduce, or with sequence parallelism one reduce-scatter
    gathered_again_s: Number = 0.0  # one input that backward gathers a second time
    exposed: Number = 1.0  # the share of a collective that nothing hides

    def layer_s(self, collectives: Number) -> Number:
        """Returns the seconds of a layer with so many collectives."""
        return collectives * self.collective_s

    def column_s(self) -> Number:
        """Returns the seconds of a column-parallel product's input in forward and backward: the gradients' sum, or
        with sequence parallelism an all-gather, its reduce-scatter, and what backward gathers again."""
        return self.collective_s + self.exposed * self.gathered_again_s

    def again_s(self, collectives: Number, shape: Shape) -> Number:
        """Returns the seconds of the inputs that a layer's backward gathers again. Slices are kept of the
        column-parallel linears' inputs (arXiv:2205.05198, section 4.2.2), except those of experts."""
        inputs = collectives - shape.moe_share
        return inputs * self.exposed * self.gathered_again_s


def tensor_group(layout: Layout, machine: Machine) -> Group:
    """Returns the tensor-parallel groups of a layout."""
    return group(layout.tensor, layout.tensor_stride, layout.world, machine)


def forward(tokens: Number, members: Group, shape: Shape, layout: Layout, machine: Machine) -> TensorTime:
    """Returns the time of forward's collectives: all-reduces of the activations (arXiv:1909.08053, section 3), or
    with sequence parallelism a reduce-scatter and an all-gather in place of each (arXiv:2205.05198, section
    4.2.2)."""
    if not has(layout.tensor > 1):
        nothing = layout.tensor * 0.0
        return TensorTime(nothing, nothing)
    costs = machine.stack.tensor_parallel
    size = tokens * shape.hidden * machine.element_bytes
    skew = costs.collective_sync_s * (layout.tensor - 1)
    whole = all_reduce_s(size, members, machine)
    time = scatter = whole
    again: Number = 0.0
    gather: Number = 0.0
    if has(layout.sequence_parallel > 0):
        gather = flag(layout.sequence_parallel > 0) * gather_s(size, members, machine)
        scattered = gather_s(size, members, machine, "reduce_scatter")
        scatter = where(layout.sequence_parallel > 0, scattered, whole)
        time = gather + scatter
        if costs.gathers_again:
            again = gather
    exposed: Number = 1 - costs.overlap
    if has(layout.tensor_overlap != 0):
        exposed = where(layout.tensor_overlap != 0, 1.0, exposed)
    ends = time if costs.small_collectives else whole
    return TensorTime(exposed * time + skew, ends, gather, scatter, again, exposed)


@dataclass(slots=True)
class RoutingTime:
    """Seconds of routing in a layer on one micro-batch, in the mean over layers with and without experts.
    Backward takes `again_s` more than forward, and recomputation `kept_s` less."""

    forward_s: Number
    again_s: Number
    kept_s: Number


def routing(
    tokens: Number, tensor: TensorTime, members: Group, shape: Shape, layout: Layout, machine: Machine
) -> RoutingTime:
    """Returns the time of what tensor-parallel ranks send besides a mixture's activations
    (`wirecost.train.parallel.tensor.experts`).

    They sum the gradients of the weights of each token's experts, in FP32. With sequence parallelism each rank
    routes its tokens: the weights are gathered and their gradients scattered, the choices gathered in eight bytes,
    and the loads of the experts summed where a loss balances them.

    Recomputation ends with the last tensor that backward needs. A mixture's sum is behind it, unless shared
    experts come after.
    """
    weights = 4 * tokens * shape.top_k
    summed = all_reduce_s(weights, members, machine)
    forward: Number = 0.0
    if has(layout.sequence_parallel > 0):
        sliced = flag(layout.sequence_parallel > 0)
        loads = shape.aux_loss * all_reduce_s(2 * 4 * shape.experts, members, machine)
        gathered = gather_s(weights, members, machine) + gather_s(2 * weights, members, machine)
        forward = sliced * (gathered + loads)
        summed = blend(sliced, gather_s(weights, members, machine, "reduce_scatter"), summed)
    share = shape.moe_share * flag(layout.tensor > 1)
    return RoutingTime(
        share * forward, share * (summed - forward), share * flag(shape.shared_experts <= 0) * tensor.sum_s
    )


def partial_gradients_s(parameters: Number, members: Group, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of summing the gradients of which each tensor-parallel rank has a part, once an
    iteration (Megatron-LM's `allreduce_layernorm_grads`).

    Ranks that share one copy of the gradients each sum their shards. The shards of ZeRO-3 are in FP32.
    """
    if not has((layout.sequence_parallel > 0) & (layout.tensor > 1)):
        return parameters * 0.0
    shards = where(layout.sharding >= 1, state_shards(layout, machine), 1.0)
    element_bytes = where((layout.sharding >= 3) & (shards > 1), 4.0, machine.element_bytes)
    size = parameters * layout.trained * element_bytes / shards
    return flag(layout.sequence_parallel > 0) * all_reduce_s(size, members, machine)


def under_products_s(time_s: Number, products_s: Number, layout: Layout) -> Number:
    """Returns the exposed part of `time_s` seconds of collectives that are cut in a chunk for each rank, and run
    under `products_s` seconds of the products beside them (Wang et al. 2023, doi 10.1145/3567955.3567959).

    One of the t chunks is taken to have nothing to run under, so that a part of 1/t at least is exposed.
    """
    return np.maximum(time_s / layout.tensor, time_s - products_s)


def vocabulary_s(tokens: Number, activation_s: Number, members: Group, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of vocabulary-parallel cross-entropy: the hidden states' gradient (`activation_s`), and
    three numbers for each token in FP32 (arXiv:1909.08053, section 3: maximum, predicted logit, sum of
    exponentials)."""
    if not has(layout.tensor > 1):
        return layout.tensor * 0.0
    return activation_s + 3 * all_reduce_s(tokens * 4.0, members, machine)
