"""Communication of tensor and sequence parallelism for a layer and for the vocabulary layer."""

from __future__ import annotations

from wirecost.model.collectives import all_reduce_s, gather_s, group
from wirecost.model.inputs import Layout, Machine, Number, Shape, has, where


def layer_forward_s(tokens: Number, collectives: float, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """`collectives` all-reduces of the activations (one after attention, one after the MLP: arXiv:1909.08053,
    section 3), or with sequence parallelism a reduce-scatter and an all-gather in place of each
    (arXiv:2205.05198, section 4.2.2)."""
    if not has(layout.tensor > 1):
        return layout.tensor * 0.0
    members = group(layout.tensor, 1.0, layout.world, machine)
    size = tokens * shape.hidden * machine.element_bytes
    exposed = 1 - machine.stack.tensor_overlap
    skew = machine.stack.collective_sync_s * (layout.tensor - 1)
    time = all_reduce_s(size, members, machine)
    if has(layout.sequence_parallel > 0):
        time = where(layout.sequence_parallel > 0, 2 * gather_s(size, members, machine), time)
    return collectives * (exposed * time + skew)


def vocabulary_s(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Vocabulary-parallel cross-entropy: the hidden states' gradient, and three numbers for each token in FP32
    (arXiv:1909.08053, section 3: maximum, predicted logit, sum of exponentials)."""
    if not has(layout.tensor > 1):
        return layout.tensor * 0.0
    members = group(layout.tensor, 1.0, layout.world, machine)
    gradient = all_reduce_s(tokens * shape.hidden * machine.element_bytes, members, machine)
    return gradient + 3 * all_reduce_s(tokens * 4.0, members, machine)


def embedding_s(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """All-reduce of the vocabulary-parallel embedding's output."""
    if not has(layout.tensor > 1):
        return layout.tensor * 0.0
    members = group(layout.tensor, 1.0, layout.world, machine)
    return all_reduce_s(tokens * shape.hidden * machine.element_bytes, members, machine)
