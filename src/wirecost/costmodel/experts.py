"""Communication of context parallelism (ring attention, Ulysses) and expert parallelism (token exchange)."""

from __future__ import annotations

import numpy as np

from wirecost.costmodel.collectives import Group, all_to_all_s, group, send_s
from wirecost.costmodel.inputs import Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has, where


def context_forward_s(
    attention_s: Number, sequence: Number, shape: Shape, layout: Layout, machine: Machine
) -> Number:
    """Returns the exposed seconds of a layer's context parallelism in forward.

    Keys and values go round the ring in cp - 1 steps, each hidden under its part of attention (arXiv:2310.01889,
    section 3: hidden where the block is large enough). With Ulysses an all-to-all of queries, keys and values
    comes before attention and one of its output after it (arXiv:2309.14509, section 3.2).
    """
    if not has(layout.context > 1):
        return layout.context * 0.0
    local = layout.micro_batch * sequence / layout.context
    size = 2 * local * shape.key_value / layout.tensor * machine.element_bytes
    crossing = flag(layout.tensor * layout.context > machine.gpus_per_node)
    step = send_s(size, crossing, machine)
    hidden = attention_s / layout.context
    ring = (layout.context - 1) * np.maximum(step - hidden, 0.0)
    if not has(layout.exchanged_context > 0):
        return ring
    members = group(layout.context, layout.tensor, layout.world, machine)
    per_width = local / layout.tensor * machine.element_bytes
    exchange = all_to_all_s(per_width * (shape.query + 2 * shape.key_value), members, machine)
    exchange = exchange + all_to_all_s(per_width * shape.query, members, machine)
    return where(layout.exchanged_context > 0, exchange, ring)


def expert_group(layout: Layout, machine: Machine) -> Group:
    """Returns the groups over which experts are divided: neighbouring data-parallel ranks, or with `experts_split`
    neighbouring ranks of any kind."""
    stride = layout.data_stride
    if machine.stack.tensor_parallel.experts_split:
        stride = where(layout.expert > layout.data * layout.context, 1.0, stride)
    return group(layout.expert, stride, layout.world, machine)


def expert_forward_s(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of two all-to-alls (to the experts and back: arXiv:2006.16668, section 3.1) of every
    token's `top_k` copies, in the mean over layers with and without experts. Shared experts are not dispatched.
    With `experts_split` and sequence parallelism each tensor-parallel rank dispatches its part of the tokens, else
    all dispatch the same."""
    if not has((layout.expert > 1) & (shape.moe_share > 0)):
        return layout.expert * 0.0
    members = expert_group(layout, machine)
    size = tokens * shape.top_k * shape.hidden * machine.element_bytes
    size = size * where(shape.capacity > 0, shape.capacity, 1.0)
    if machine.stack.tensor_parallel.experts_split:
        size = size / (1 + layout.sequence_parallel * (layout.tensor - 1))
    return 2 * shape.moe_share * all_to_all_s(size, members, machine, _once(shape, members))


def _once(shape: Shape, members: Group) -> Number:
    """Returns the share of the copies that leave a node with node-limited routing: a token uses experts on few
    nodes, is sent to each of them once, and goes on over the links inside (DeepSeek-V3, arXiv:2412.19437, sections
    2.1.2 and 3.2.2)."""
    if not has(shape.used_groups > 0):
        return 1.0
    nodes = np.minimum(np.minimum(shape.used_groups, members.nodes), shape.top_k)
    return where(shape.used_groups > 0, nodes / shape.top_k, 1.0)
