"""Communication of context parallelism (ring attention) and expert parallelism (token exchange)."""

from __future__ import annotations

import numpy as np

from wirecost.costmodel.collectives import all_to_all_s, group, send_s
from wirecost.costmodel.inputs import Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has


def context_forward_s(
    attention_s: Number, sequence: Number, shape: Shape, layout: Layout, machine: Machine
) -> Number:
    """Returns the exposed seconds of keys and values that go round the ring in cp - 1 steps, each hidden under
    its part of attention (arXiv:2310.01889, section 3: hidden where the block is large enough)."""
    if not has(layout.context > 1):
        return layout.context * 0.0
    local = layout.micro_batch * sequence / layout.context
    size = 2 * local * shape.key_value / layout.tensor * machine.element_bytes
    crossing = flag(layout.tensor * layout.context > machine.gpus_per_node)
    step = send_s(size, crossing, machine)
    hidden = attention_s / layout.context
    return (layout.context - 1) * np.maximum(step - hidden, 0.0)


def expert_forward_s(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of two all-to-alls (to the experts and back: arXiv:2006.16668, section 3.1) of every
    token's top_k copies."""
    if not has(layout.expert > 1):
        return layout.expert * 0.0
    members = group(layout.expert, layout.tensor * layout.context, layout.world, machine)
    size = tokens * shape.top_k * shape.hidden * machine.element_bytes
    return 2 * all_to_all_s(size, members, machine)
