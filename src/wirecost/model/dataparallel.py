"""Gradient synchronization and ZeRO: what moves for the parameters that a rank holds, and how much is exposed.

ZeRO's volumes are those of Rajbhandari et al. 2020 (arXiv:1910.02054, section 7): stages 0 to 2 move 2 x the
parameters an iteration, stage 3 moves 3 x, since it gathers in forward and again in backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.model.collectives import Group, all_reduce_s, gather_s, group, hierarchical_all_reduce_s, placed
from wirecost.model.inputs import Layout, Machine, Number, blend, flag, has, where
from wirecost.model.overlap import exposed_s

FIRST_BUCKET_BYTES = 1 << 20
"""PyTorch's DistributedDataParallel gathers gradients into a first bucket of 1 MiB and then of its `bucket_cap_mb`
(arXiv:2006.15704, section 3.2.3): a small model's gradients leave nearly all at once."""


@dataclass(slots=True)
class DataParallelTime:
    """Seconds for each iteration. `exposed` parts add to compute; `total` counts what is hidden as well."""

    gradient_s: Number  # exposed
    parameter_s: Number  # exposed
    total_s: Number


def data_group(layout: Layout, machine: Machine) -> Group:
    return group(layout.data * layout.context, layout.data_stride, layout.world, machine)


def gradient_bytes(layout: Layout, machine: Machine) -> Number:
    """Bytes of one gradient on the wire."""
    stacks = machine.stack.gradient_bytes if machine.element_bytes < 4 else max(machine.stack.gradient_bytes, 4.0)
    return where(layout.gradient_bytes > 0, layout.gradient_bytes, stacks)


def data_parallel(
    parameters: Number,
    layers: Number,
    forward_s: Number,
    backward_s: Number,
    layout: Layout,
    machine: Machine,
    tied_parameters: Number = 0.0,
) -> DataParallelTime:
    """Exposed and total time for `parameters` on this rank in `layers` layers; `forward_s` and `backward_s` are
    one micro-batch's compute on this rank, `tied_parameters` the embedding's share of `parameters`."""
    stack = machine.stack
    if not has(layout.data * layout.context > 1):
        nothing = parameters * 0.0
        return DataParallelTime(nothing, nothing, nothing)
    members = data_group(layout, machine)
    several = members.several
    gradients = parameters * gradient_bytes(layout, machine)
    rounds = layout.accumulation
    hide = flag(layout.bucketed > 0)
    overlap = stack.data_parallel_overlap
    # Stage 0: all-reduce once, after backward or bucketed under the last micro-batch's backward.
    whole = several * (all_reduce_s(gradients, members, machine) + stack.gradient_sync_s)
    tail = 0.0
    if has(layout.bucketed > 0):
        # The last bucket leaves only when backward ends, and with it the tied embedding's gradient.
        rest = np.maximum(gradients - FIRST_BUCKET_BYTES, 0.0)
        last = np.maximum(np.mod(rest, layout.bucket_bytes), tied_parameters * gradient_bytes(layout, machine))
        late = np.minimum(last, gradients)
        tail = several * all_reduce_s(late, members, machine)
    grad = blend(hide, np.maximum(exposed_s(whole, backward_s, overlap), tail), whole)
    if not has(layout.sharding > 0):
        return DataParallelTime(grad, parameters * 0.0, whole)
    weights = parameters * machine.element_bytes
    each = stack.sync_every_micro_batch
    fully = flag((layout.sharding == 3) | ((layout.sharding == 2) & each))
    simply = flag(layout.sharding >= 1) - fully
    par, total = parameters * 0.0, whole
    if has(simply > 0):
        # Stages 1 and 2: reduce-scatter gradients, gather updated parameters, once an iteration.
        scatter = several * (gather_s(gradients, members, machine, "reduce_scatter") + stack.gradient_sync_s)
        gather = several * gather_s(weights, members, machine)
        grad = blend(simply, blend(hide, exposed_s(scatter, backward_s, overlap), scatter), grad)
        par = simply * blend(hide, exposed_s(gather, forward_s, overlap), gather)
        total = blend(simply, scatter + gather, total)
    if has(fully > 0):
        inner = _fully_sharded(gradients, weights, layers, forward_s, backward_s, members, layout, machine)
        grad = blend(fully, rounds * inner.gradient_s + inner.once_s, grad)
        par = blend(fully, rounds * inner.parameter_s, par)
        total = blend(fully, rounds * inner.total_s + inner.once_s, total)
    return DataParallelTime(grad, par, total)


@dataclass(slots=True)
class _Sharded:
    """Seconds for each micro-batch, and `once_s` for each iteration."""

    gradient_s: Number
    parameter_s: Number
    total_s: Number
    once_s: Number


def _fully_sharded(
    gradients: Number,
    weights: Number,
    layers: Number,
    forward_s: Number,
    backward_s: Number,
    members: Group,
    layout: Layout,
    machine: Machine,
) -> _Sharded:
    """Stage 3 (and stage 2 where each micro-batch reduces): layer by layer, under compute. Latency counts for each
    layer's own collectives. Hybrid sharding keeps shards inside nodes and all-reduces between them once."""
    stack = machine.stack
    shard, once = members, 0.0
    if has(layout.node_sharding > 0):
        hybrid = flag(layout.node_sharding > 0)
        inside = placed(members.per_node, members.per_node, members.rings, machine)
        levels = hierarchical_all_reduce_s(gradients, members, machine) - 2 * gather_s(gradients, inside, machine)
        once = members.several * hybrid * np.maximum(levels, 0.0)
        size = where(layout.node_sharding > 0, inside.size, members.size)
        per_node = where(layout.node_sharding > 0, inside.per_node, members.per_node)
        shard = placed(size, per_node, members.rings, machine)
    units = np.maximum(layers, 1.0) * stack.shard_messages
    gather = units * gather_s(weights / units, shard, machine)
    scatter = units * gather_s(gradients / units, shard, machine, "reduce_scatter")
    again = gather * (1 - flag(layout.sharding == 2))  # stage 2 keeps what it gathered
    overlap = stack.shard_overlap * flag(layout.bucketed > 0)
    return _Sharded(
        exposed_s(again + scatter, backward_s, overlap),
        exposed_s(gather, forward_s, overlap),
        gather + again + scatter,
        once,
    )


def optimizer_s(parameters: Number, layout: Layout, machine: Machine) -> Number:
    """Adam's reads and writes over memory bandwidth, for the parameters that this rank updates."""
    share = where(layout.sharding >= 1, parameters / (layout.data * layout.context), parameters)
    return share * machine.stack.optimizer_bytes / (machine.memory_Bps * machine.memory_efficiency)
