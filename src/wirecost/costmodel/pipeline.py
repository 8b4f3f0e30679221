"""Pipeline schedules: bubble, uneven stages, and transfers between stages.

GPipe (arXiv:1811.06965) and 1F1B (arXiv:1806.03377) fill and drain p - 1 stages; interleaving v chunks divides
that by v (arXiv:2104.04473, section 2.2). GPipe differs in memory, not in time. Zero-bubble schedules fill the
bubble with the gradients of weights (arXiv:2401.10241, table 2), and DualPipe with micro-batches from both ends
(arXiv:2412.19437, table 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.collectives import all_reduce_s, placed, send_s
from wirecost.costmodel.inputs import Layout, Machine, Shape
from wirecost.costmodel.numbers import Flag, Number, blend, flag, has, where


@dataclass(slots=True)
class PipelineWork:
    """The work of the stages for one micro-batch in seconds: forward and backward of one layer, and the additional
    work of the first and last stage; `tokens` are sent from stage to stage. `forward_share` and `weight_share` are
    the parts of a layer's seconds that forward and the gradients of weights take.
    """

    layer_s: Number
    layers: Number
    first_s: Number
    last_s: Number
    tokens: Number
    forward_share: Number = 1 / 3
    weight_share: Number = 1 / 3


@dataclass(slots=True)
class PipelineTime:
    """Seconds for each iteration: the busiest stage's work, its wait for others, the mean stage's additional wait,
    and transfers.
    """

    busy_s: Number
    bubble_s: Number
    uneven_s: Number
    transfer_s: Number
    layers_of_stage: Number


def largest_stage(layers: Number, layout: Layout) -> Number:
    """Returns the layers of the fullest stage when they don't divide evenly over stages and chunks."""
    chunks = layout.pipeline * layout.virtual
    return np.ceil(layers / chunks) * layout.virtual


def ends_are_shorter(layers: Number, layout: Layout, modules: Number = 0.0) -> Flag:
    """Returns whether embedding and loss each replace a layer, as with Llama 3's 126 layers on 16 stages
    (arXiv:2407.21783, section 3.3.2). The last stage has `modules` further layers.
    """
    chunks = layout.pipeline * layout.virtual
    return (layout.pipeline > 1) & (np.mod(layers, chunks) != 0) & (np.mod(layers + modules + 2, chunks) == 0)


def boundary_crosses_nodes(layout: Layout, machine: Machine) -> Number:
    """Returns the share of stage boundaries between nodes. Ranks run tensor, context, data, then pipeline, so
    that a stage is world / pipeline neighbours, or in another order (`Layout.stage_stride`)."""
    stage = layout.stage_stride
    per_node = np.maximum(1.0, np.floor(machine.gpus_per_node / stage))
    nodes = np.ceil(layout.pipeline / per_node)
    inside = where(layout.pipeline > 1, (nodes - 1) / np.maximum(layout.pipeline - 1, 1.0), 0.0)
    return inside


def transfer_s(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of one activation's way to the next stage."""
    size = tokens * shape.hidden * machine.element_bytes
    split = layout.sequence_parallel > 0
    if machine.stack.pipeline.split:
        # Scatter/gather optimization of arXiv:2104.04473, section 4.1.
        size = size / layout.tensor
    elif has(split):
        size = where(split, size / layout.tensor, size)
    # A node sends to the next what its one last stage holds, not what all its GPUs do.
    senders = np.minimum(machine.gpus_per_node, layout.stage_stride)
    return send_s(size, boundary_crosses_nodes(layout, machine), machine, senders)


def received_hops(layout: Layout) -> Number:
    """Returns how many transfers the longest chain of an iteration waits for where each begins only when its
    receiver asks for it: every one that the busiest rank receives (with two stages each rank has an end, which
    receives one less), and the way in and out of the pipeline. Closed form of what the schedules give when
    played through, which `tests/unit/costmodel/test_pipeline_hops.py` does."""
    m, p, v = layout.accumulation, layout.pipeline, layout.virtual
    ends = flag(p <= 2)
    steady = (2 * v - ends) * m + np.maximum(2 * p - 5, 1.0)
    if not has(layout.gpipe > 0):
        return steady
    return blend(flag(layout.gpipe > 0), 2 * m + 2 * (p - 2), steady)


def schedule(work: PipelineWork, shape: Shape, layout: Layout, machine: Machine) -> PipelineTime:
    """Returns the time of an iteration's pipeline."""
    m, p, v = layout.accumulation, layout.pipeline, layout.virtual
    layers = largest_stage(work.layers, layout)
    whole = work.layers * work.layer_s + work.first_s + work.last_s
    single = p <= 1
    # The fullest stage may or may not be an end; with even stages the end with the larger extra is the busiest.
    last_s = work.last_s
    if has(shape.predicted > 0):
        # Modules of multi-token prediction take the place of layers where the last stage has fewer.
        free = np.maximum(layers * p - work.layers, 0.0)
        last_s = np.maximum(last_s - np.minimum(free, shape.predicted) * work.layer_s, 0.0)
    ends = np.maximum(work.first_s, last_s)
    if has(layers * p > work.layers):
        shorter = flag(ends_are_shorter(work.layers, layout, shape.predicted))
        ends = blend(shorter, np.maximum(ends - work.layer_s, 0.0), ends)
    # One stage has both ends: it is the whole, and nothing is left to wait for.
    stage = np.minimum(blend(flag(single), whole, layers * work.layer_s + ends), whole)
    bubble = (whole - stage) / v * _filled(work, layout)
    if not has(p > 1):
        return PipelineTime(m * stage, bubble, stage * 0.0, stage * 0.0, layers)
    hop = transfer_s(work.tokens, shape, layout, machine)
    if machine.stack.pipeline.rendezvous:
        exposed = received_hops(layout)
    else:
        exposed = machine.stack.pipeline.exposed * 2 * v * m + 2 * (p - 1)
    uneven = m * np.maximum(stage - whole / np.maximum(p, 1.0), 0.0)
    return PipelineTime(m * stage, bubble, uneven, (1 - flag(single)) * exposed * hop, layers)


def _filled(work: PipelineWork, layout: Layout) -> Number:
    """Returns the bubble of a schedule over that of 1F1B, which is (p - 1) (F + B + W): forward, and backward for
    activations and for weights.

    ZB-H1 has (p - 1) (F + B - W) and ZB-H2 (p - 1) (F + B - 2 W) (arXiv:2401.10241, table 2). DualPipe has
    (p/2 - 1) (F + 2 (B + W) - 3 W) (arXiv:2412.19437, table 2).
    """
    share: Number = 1.0
    if has(layout.zero_bubble > 0):
        left = 1 - (1 + layout.zero_bubble) * work.weight_share
        share = where(layout.zero_bubble > 0, np.maximum(left, 0.0), share)
    if has(layout.dualpipe > 0):
        p = layout.pipeline
        both = 1 + (1 - work.forward_share) - 3 * work.weight_share
        ends = np.maximum(p / 2 - 1, 0.0) / np.maximum(p - 1, 1.0)
        share = where(layout.dualpipe > 0, ends * np.maximum(both, 0.0), share)
    return share


def tied_embedding_s(parameters: Number, layout: Layout, gradient_bytes: Number, machine: Machine) -> Number:
    """Returns the seconds in which first and last stage all-reduce the gradient of a tied embedding of which
    each tensor rank holds `parameters`."""
    if not has(layout.pipeline > 1):
        return layout.pipeline * 0.0
    crossing = boundary_crosses_nodes(layout, machine) > 0
    size = where((layout.pipeline > 1) & (parameters > 0), 2.0, 1.0)
    rings = np.minimum(machine.gpus_per_node, layout.stage_stride)
    pair = placed(size, where(crossing, 1.0, size), rings, machine)
    if machine.stack.pipeline.tied_sync_sharded and has(layout.sharding > 0):
        parameters = where(layout.sharding > 0, parameters / layout.data, parameters)
    return all_reduce_s(parameters * gradient_bytes, pair, machine)
