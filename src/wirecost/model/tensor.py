"""Communication of tensor and sequence parallelism for a layer and for the vocabulary layer."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.model.collectives import Group, all_reduce_s, gather_s, group
from wirecost.model.inputs import Layout, Machine, Number, Shape, flag, has, where


@dataclass(slots=True)
class TensorTime:
    """Seconds on one rank for one micro-batch, forward (backward takes as much, and `again_s`)."""

    layer_s: Number  # all of a layer's collectives
    activation_s: Number  # one all-reduce of tokens x hidden
    again_s: Number = 0.0  # inputs that a layer's backward gathers a second time
    head_again_s: Number = 0.0  # the same of the vocabulary layer


def tensor_group(layout: Layout, machine: Machine) -> Group:
    return group(layout.tensor, layout.tensor_stride, layout.world, machine)


def forward(
    tokens: Number, collectives: float, members: Group, shape: Shape, layout: Layout, machine: Machine
) -> TensorTime:
    """`collectives` all-reduces of the activations (one after attention, one after the MLP: arXiv:1909.08053,
    section 3), or with sequence parallelism a reduce-scatter and an all-gather in place of each
    (arXiv:2205.05198, section 4.2.2)."""
    if not has(layout.tensor > 1):
        nothing = layout.tensor * 0.0
        return TensorTime(nothing, nothing)
    size = tokens * shape.hidden * machine.element_bytes
    skew = machine.stack.collective_sync_s * (layout.tensor - 1)
    whole = all_reduce_s(size, members, machine)
    time = whole
    again = 0.0
    if has(layout.sequence_parallel > 0):
        gather = gather_s(size, members, machine)
        scatter = gather_s(size, members, machine, "reduce_scatter")
        time = where(layout.sequence_parallel > 0, gather + scatter, whole)
        if machine.stack.sequence_gathers_again:
            # Slices are kept of the column-parallel linears' inputs (arXiv:2205.05198, section 4.2.2); where the
            # two of a gated MLP share theirs, the whole is.
            again = flag(layout.sequence_parallel > 0) * gather
    kept = 1 - machine.stack.tensor_overlap
    inputs = collectives - flag(shape.mlp_matrices > 2)
    return TensorTime(collectives * (kept * time + skew), whole, inputs * kept * again, again)


def vocabulary_s(tokens: Number, activation_s: Number, members: Group, layout: Layout, machine: Machine) -> Number:
    """Vocabulary-parallel cross-entropy: the hidden states' gradient (`activation_s`), and three numbers for each
    token in FP32 (arXiv:1909.08053, section 3: maximum, predicted logit, sum of exponentials)."""
    if not has(layout.tensor > 1):
        return layout.tensor * 0.0
    return activation_s + 3 * all_reduce_s(tokens * 4.0, members, machine)
