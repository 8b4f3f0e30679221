"""Time of a layer's and the vocabulary layer's kernels, and of launching them.

Device time is additive: products at the achieved rate plus their operands' memory traffic (which makes small and
thin products slow), attention, and element-wise kernels in bytes over memory bandwidth (the roofline of Williams
et al. 2009, doi 10.1145/1498765.1498785, summed instead of maximised since kernels of a layer run one after
another). The host launches kernels ahead of the device: a layer takes the smooth maximum of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.flops import LayerWork, window_scores
from wirecost.costmodel.host_launch import relative_launches, tensor_launches_s
from wirecost.costmodel.inputs import RECOMPUTE_FULL, RECOMPUTE_SELECTIVE, Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has, where
from wirecost.spec import Stack


@dataclass(slots=True)
class DeviceTime:
    """Kernels of one layer (or the vocabulary layer) on one micro-batch, in seconds."""

    forward_s: Number
    backward_s: Number
    attention_core_s: Number  # the part of forward that selective recomputation repeats
    products_s: Number = 0.0  # the part of forward of the matrix products outside of attention


def smooth_maximum(a: Number, b: Number, sharpness: float) -> Number:
    """Returns (a^p + b^p)^(1/p), which is above both where they are alike: host and device each stall the
    other."""
    high = np.maximum(a, b)
    low = np.minimum(a, b)
    ratio = low / np.maximum(high, 1e-30)
    return high * np.exp(np.log1p(ratio**sharpness) / sharpness)


REFERENCE_SHARE = 0.75
"""The share of a GPU's peak at which a stack's factor for matrix products applies as it is."""


def share_of_peak(gpu: Number, stack: Number) -> Number:
    """Returns the share of a GPU's peak that a stack's matrix products reach.

    A stack changes what matrix products lose, so that no pair exceeds the peak. The losses, 1 / share - 1, of
    every GPU are multiplied by a factor that turns REFERENCE_SHARE into `stack` times as much.

    Args:
        gpu: the GPU's share of its peak.
        stack: the stack's factor.
    """
    factor = (1 / (stack * REFERENCE_SHARE) - 1) / (1 / REFERENCE_SHARE - 1)
    return 1 / (1 + (1 / gpu - 1) * factor)


def matrix_s(flops: Number, elements: Number, machine: Machine) -> Number:
    """Returns the seconds of matrix products of `flops` operations over `elements` operands and results."""
    rate = machine.peak_flops * share_of_peak(machine.matrix_efficiency, machine.stack.layer.matrix_efficiency)
    traffic = machine.matrix_traffic * machine.element_bytes / (machine.memory_Bps * machine.memory_efficiency)
    return flops / rate + elements * traffic


def layer_device(work: LayerWork, shape: Shape, layout: Layout, machine: Machine) -> DeviceTime:
    """Returns the device time of one layer without its communication."""
    attention, layer = machine.stack.attention, machine.stack.layer
    memory = machine.memory_Bps * machine.memory_efficiency
    cool = matrix_s(work.matrix_flops, work.matrix_elements, machine)
    half_precision = machine.attention_peak_flops * machine.matrix_efficiency * attention.efficiency
    half_precision = half_precision * machine.attention_efficiency
    products_s = work.attention_flops * attention_work(work.keys, shape, machine) / half_precision
    core = products_s + work.scores * attention.bytes_forward / memory
    gated = flag(shape.mlp_matrices > 2)
    sharded_bytes: Number = layer.sharded_bytes
    if layer.gated_bytes:
        sharded_bytes = sharded_bytes + layer.gated_bytes * gated
    elementwise = (
        work.hidden_elements * layer.hidden_bytes
        + work.sharded_elements * sharded_bytes
        + work.dispatched_elements * layer.expert_bytes
    ) / memory
    if layer.gaps_s:
        elementwise = elementwise + layer.gaps_s * (1 + (machine.stack.host.gated - 1) * gated)
    products = cool
    if machine.power_throttle:
        # Clock rates fall at the power limit, which dense products reach.
        products = cool * (1 + machine.power_throttle * cool / (cool + core + elementwise))
    # Backward of fused attention does 5 products where forward does 2 (arXiv:2205.14135, section 3.1).
    factor = 2.5 if attention.kind == "fused" else 2.0
    back = factor * products_s + work.scores * attention.bytes_backward / memory
    # Without gradients of the weights, backward has one product where it otherwise has two.
    weights = layout.trained
    backward = (1 + weights) * products + back + 2 * elementwise
    return DeviceTime(products + core + elementwise, backward, core, products)


CAUSAL_TILES, FULL_TILES = 512.0, 170.0
"""Sequence lengths with which fused attention takes twice its time per score: tiles on the diagonal are computed
whole, and short sequences don't fill the GPU. The rates of arXiv:2307.08691 (section 4.1) grow like that."""
SMALL_HEAD = 32.0
"""Head size with which fused attention reaches half the rate of very large heads (there heads of 64 are slower
than those of 128)."""
USUAL_HEAD = 128.0


def attention_work(keys: Number, shape: Shape, machine: Machine) -> Number:
    """Returns the time of attention relative to that of all its scores at the rate of long sequences and heads of
    128. Fused attention skips what lies outside of a window, unfused attention computes and masks it."""
    attention = machine.stack.attention
    causal = shape.causal
    if attention.kind != "fused":
        return 1 - causal * (1 - attention.work)
    edge = FULL_TILES + causal * (CAUSAL_TILES - FULL_TILES)
    tiles = 1 + edge / np.maximum(keys, 1.0)  # an encoder stacked with a decoder has layers of 0 keys
    if has(shape.window_share > 0):
        # Tiles on both edges of a window are computed whole. No window takes longer than none.
        inside = window_scores(shape, keys) * (1 + edge / np.clip(shape.window, 1.0, keys))
        tiles = tiles - shape.window_share * np.maximum(tiles - inside, 0.0)
    size = shape.query / shape.heads
    heads = (1 + SMALL_HEAD / size) / (1 + SMALL_HEAD / USUAL_HEAD)
    return (1 - causal * (1 - attention.work)) * tiles * heads


@dataclass(slots=True)
class LayerTime:
    """One layer on one micro-batch on one rank, with the tensor-parallel time inside (it sits on the same
    stream): wall time of both passes, and what of it the kernels and the communication take."""

    forward_s: Number
    backward_s: Number
    device_s: Number
    communication_s: Number


@dataclass(slots=True)
class LayerCommunication:
    """A layer's communication on one micro-batch in seconds: of forward, what backward takes more, and how many
    all-reduces tensor parallelism has in each pass without sequence parallelism."""

    forward_s: Number
    again_s: Number
    collectives: Number


def layer_time(
    device: DeviceTime, communication: LayerCommunication, shape: Shape, layout: Layout, machine: Machine
) -> LayerTime:
    """Returns the wall time of a layer from its device time, its communication and the host's launch times.

    Full recomputation repeats forward with its communication (arXiv:2104.04473, section 3.5).
    """
    stack, host = machine.stack, machine.host
    full = flag(layout.recompute == RECOMPUTE_FULL)
    selective = flag(layout.recompute == RECOMPUTE_SELECTIVE)
    launch, backward_launch = tensor_launches_s(communication.collectives, shape, layout, host)
    if stack.attention.softmax_needs_multiple_of > 1:
        # Megatron's fused softmax takes only multiples (fused_softmax.py, is_kernel_available).
        heads = layout.micro_batch * shape.heads / layout.tensor
        odd = np.mod(heads, stack.attention.softmax_needs_multiple_of) != 0
        launch = launch + flag(odd) * host.softmax_fallback_s
        backward_launch = backward_launch + flag(odd) * host.softmax_fallback_s
    relative = relative_launches(shape, stack.host)
    host_forward = relative * host.forward_s + launch
    host_backward = relative * host.backward_s + backward_launch + full * host_forward
    comm_forward = communication.forward_s
    comm_backward = comm_forward * (1 + full) + communication.again_s
    repeated = _selective_s(device, stack)
    device_backward = device.backward_s + full * device.forward_s + selective * repeated
    forward = smooth_maximum(device.forward_s + comm_forward, host_forward, stack.host.sharpness)
    backward = smooth_maximum(device_backward + comm_backward, host_backward, stack.host.sharpness)
    return LayerTime(forward, backward, device.forward_s + device_backward, comm_forward + comm_backward)


def _selective_s(device: DeviceTime, stack: Stack) -> Number:
    """Returns the seconds of what `selective` repeats. The backward of fused attention computes the scores again
    in any case (arXiv:2205.14135, section 3.1), so that repeating attention alone costs nothing more there."""
    rest = stack.recomputation.rest * (device.forward_s - device.attention_core_s)
    if stack.attention.kind == "fused" and stack.recomputation.rest <= 0:
        return rest
    return stack.recomputation.attention * device.attention_core_s + rest


def vocabulary_time(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of logits, cross-entropy and their backward for one micro-batch on the last stage,
    without communication."""
    kernels = machine.stack.vocabulary
    logits = tokens * shape.vocab / layout.tensor
    elements = tokens * shape.hidden + logits + shape.vocab * shape.hidden / layout.tensor
    rate = machine.attention_peak_flops * machine.matrix_efficiency * kernels.efficiency
    if kernels.padded == "tensor_parallel":
        # Products with a side that is no multiple of 8 miss the tensor cores' fast path (NVIDIA, "Matrix
        # Multiplication Background User's Guide", section 4.1).
        unaligned = (layout.tensor == 1) & (np.mod(shape.vocab, 8) != 0)
        if has(unaligned):
            rate = where(unaligned, rate * kernels.unaligned_efficiency, rate)
    memory = machine.memory_Bps * machine.memory_efficiency
    traffic = machine.matrix_traffic * machine.element_bytes * elements / memory
    passes = 2 + flag(layout.trained >= 1)  # forward, gradients of the inputs and of the weights
    products = passes * (2 * logits * shape.hidden / rate + traffic)
    return smooth_maximum(
        products + logits * kernels.bytes / memory, machine.host.vocabulary_s, machine.stack.host.sharpness
    )


def embedding_time(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of the look-up and its backward on the first stage for one micro-batch."""
    memory = machine.memory_Bps * machine.memory_efficiency
    return tokens * shape.hidden * machine.stack.vocabulary.embedding_bytes / memory
