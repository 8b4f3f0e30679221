"""The groups of ranks that data parallelism forms: those that divide a copy of gradients, parameters and optimizer
states among them, and those that hold the same experts."""

from __future__ import annotations

import numpy as np

from wirecost.costmodel.collectives import Group, gather_s, group, hierarchical_all_reduce_s, placed
from wirecost.costmodel.inputs import Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has, where


def data_group(layout: Layout, machine: Machine) -> Group:
    """Returns the data-parallel groups of a layout."""
    return group(layout.data * layout.context, layout.data_stride, layout.world, machine)


def state_shards(layout: Layout, machine: Machine) -> Number:
    """Returns the number of ranks that share one copy of what ZeRO shards: all of the data-parallel group, or with
    hybrid sharding those of it that a node has. Tensor parallelism takes neighbouring ranks first."""
    shards = layout.data * layout.context
    if not has(layout.node_sharding > 0):
        return shards
    present = np.minimum(machine.gpus_per_node, layout.world)
    inside = np.minimum(shards, np.maximum(1.0, np.floor(present / layout.data_stride)))
    return where(layout.node_sharding > 0, inside, shards)


def expert_shards(layout: Layout) -> Number:
    """Returns the number of data-parallel ranks that hold the same experts."""
    return np.maximum(layout.data * layout.context / layout.expert, 1.0)


def expert_blocks(layers: Number, shape: Shape, layout: Layout) -> Number:
    """Returns how many of the `layers` on a rank have experts that are divided among ranks and sharded over
    others, so that ZeRO-3 gathers them by themselves."""
    if not has(shape.moe_share > 0):
        return 0.0
    return flag((layout.expert > 1) & (expert_shards(layout) > 1)) * shape.moe_share * layers


def expert_data_group(layout: Layout, machine: Machine) -> Group:
    """Returns the groups of ranks that hold the same experts: every `expert`-th data-parallel rank."""
    return group(expert_shards(layout), layout.data_stride * layout.expert, layout.world, machine)


def sharding_group(gradients: Number, members: Group, layout: Layout, machine: Machine) -> tuple[Group, Number]:
    """Returns the group that shares one copy of the state, and the seconds of an all-reduce of each shard's
    gradient between nodes once an iteration, which hybrid sharding needs.
    """
    if not has(layout.node_sharding > 0):
        return members, 0.0
    hybrid = flag(layout.node_sharding > 0)
    inside = placed(members.per_node, members.per_node, members.rings, machine)
    levels = hierarchical_all_reduce_s(gradients, members, machine) - 2 * gather_s(gradients, inside, machine)
    once = members.several * hybrid * np.maximum(levels, 0.0)
    size = where(layout.node_sharding > 0, inside.size, members.size)
    per_node = where(layout.node_sharding > 0, inside.per_node, members.per_node)
    return placed(size, per_node, members.rings, machine), once
