"""Gradient synchronization and ZeRO: what moves for the parameters that a rank holds, and how much is exposed.

ZeRO's volumes are those of Rajbhandari et al. 2020 (arXiv:1910.02054, section 7): stages 0 to 2 move 2 x the
parameters an iteration, stage 3 moves 3 x, since it gathers in forward and again in backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.model.collectives import Group, all_reduce_s, gather_s, group, hierarchical_all_reduce_s, placed
from wirecost.model.inputs import Layout, Machine, Number, has, where
from wirecost.model.overlap import exposed_s


@dataclass(slots=True)
class DataParallelTime:
    """Seconds for each iteration. `exposed` parts add to compute; `total` counts what is hidden as well."""

    gradient_s: Number  # exposed
    parameter_s: Number  # exposed
    total_s: Number


def data_group(layout: Layout, machine: Machine) -> Group:
    return group(layout.data * layout.context, layout.tensor, layout.world, machine)


def gradient_bytes(layout: Layout, machine: Machine) -> Number:
    """Bytes of one gradient on the wire."""
    return where(layout.gradient_bytes > 0, layout.gradient_bytes, machine.stack.gradient_bytes)


def data_parallel(
    parameters: Number,
    layers: Number,
    forward_s: Number,
    backward_s: Number,
    layout: Layout,
    machine: Machine,
) -> DataParallelTime:
    """Exposed and total time for `parameters` on this rank in `layers` layers; `forward_s` and `backward_s` are
    one micro-batch's compute on this rank."""
    stack = machine.stack
    if not has(layout.data * layout.context > 1):
        nothing = parameters * 0.0
        return DataParallelTime(nothing, nothing, nothing)
    members = data_group(layout, machine)
    several = where(members.size > 1, 1.0, 0.0)
    gradients = parameters * gradient_bytes(layout, machine)
    weights = parameters * machine.element_bytes
    rounds = layout.accumulation
    sharded = where(layout.sharding >= 1, 1.0, 0.0)
    # Stage 0: all-reduce once, after backward or bucketed under the last micro-batch's backward.
    whole = several * (all_reduce_s(gradients, members, machine) + stack.gradient_sync_s)
    overlap = stack.data_parallel_overlap
    hidden = exposed_s(whole, backward_s, overlap)
    grad0 = where(layout.bucketed > 0, hidden, whole)
    if not has(layout.sharding > 0):
        return DataParallelTime(grad0, parameters * 0.0, whole)
    scatter = several * (gather_s(gradients, members, machine) + stack.gradient_sync_s)
    gather = several * gather_s(weights, members, machine)
    # Stage 1: reduce-scatter once, gather updated parameters once; stage 2 reduces for every micro-batch.
    times = where(layout.sharding == 2, where(stack.sync_every_micro_batch, rounds, 1.0), 1.0)
    hide = where(layout.bucketed > 0, 1.0, 0.0)
    grad12 = times * (hide * exposed_s(scatter, backward_s, overlap) + (1 - hide) * scatter)
    par12 = hide * exposed_s(gather, forward_s, overlap) + (1 - hide) * gather
    # Stage 3: layer by layer, under compute. Latency counts for each layer's own collective.
    shard = members
    extra = parameters * 0.0
    if has(layout.node_sharding > 0):
        inside = placed(members.per_node, members.per_node, members.rings, machine)
        between = where(
            layout.node_sharding > 0, hierarchical_all_reduce_s(gradients, members, machine), 0.0
        ) - where(layout.node_sharding > 0, 2 * gather_s(gradients, inside, machine), 0.0)
        extra = several * np.maximum(between, 0.0)
        size = where(layout.node_sharding > 0, inside.size, members.size)
        shard = placed(
            size, where(layout.node_sharding > 0, inside.per_node, members.per_node), members.rings, machine
        )
    units = np.maximum(layers, 1.0) * stack.shard_messages
    gather3 = several * units * gather_s(weights / units, shard, machine)
    scatter3 = several * units * gather_s(gradients / units, shard, machine)
    keeps = where(layout.sharding == 2, 1.0, 0.0)  # gathered once, kept through backward
    forward3 = exposed_s(gather3, forward_s, stack.shard_overlap)
    backward3 = exposed_s(gather3 * (1 - keeps) + scatter3, backward_s, stack.shard_overlap)
    fully = where((layout.sharding == 3) | ((layout.sharding == 2) & stack.sync_every_micro_batch), 1.0, 0.0)
    grad = where(sharded > 0, where(fully > 0, rounds * backward3 + extra, grad12), grad0)
    par = where(sharded > 0, where(fully > 0, rounds * forward3, par12), 0.0)
    total = where(
        sharded > 0,
        where(fully > 0, rounds * ((2 - keeps) * gather3 + scatter3) + extra, times * scatter + gather),
        whole,
    )
    return DataParallelTime(grad, par, total)


def optimizer_s(parameters: Number, layout: Layout, machine: Machine) -> Number:
    """Adam's reads and writes over memory bandwidth, for the parameters that this rank updates."""
    share = where(layout.sharding >= 1, parameters / (layout.data * layout.context), parameters)
    return share * machine.stack.optimizer_bytes / (machine.memory_Bps * machine.memory_efficiency)
