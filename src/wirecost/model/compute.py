"""Time of a layer's and the vocabulary layer's kernels, and of launching them.

Device time is additive: products at the achieved rate plus their operands' memory traffic (which makes small and
thin products slow), attention, and element-wise kernels in bytes over memory bandwidth (the roofline of Williams
et al. 2009, doi 10.1145/1498765.1498785, summed instead of maximised since kernels of a layer run one after
another). The host launches kernels ahead of the device: a layer takes the smooth maximum of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wirecost.model.flops import LayerWork
from wirecost.model.inputs import (
    RECOMPUTE_FULL,
    RECOMPUTE_SELECTIVE,
    Layout,
    Machine,
    Number,
    Shape,
    flag,
    has,
    where,
)


@dataclass(slots=True)
class DeviceTime:
    """Kernels of one layer (or the vocabulary layer) on one micro-batch, in seconds."""

    forward_s: Number
    backward_s: Number
    attention_core_s: Number  # the part of forward that selective recomputation repeats


def smooth_maximum(a: Number, b: Number, sharpness: float) -> Number:
    """(a^p + b^p)^(1/p): above both where they are alike, since host and device each stall the other a little."""
    high = np.maximum(a, b)
    low = np.minimum(a, b)
    ratio = low / np.maximum(high, 1e-30)
    return high * np.exp(np.log1p(ratio**sharpness) / sharpness)


def matrix_s(flops: Number, elements: Number, machine: Machine) -> Number:
    """Seconds for matrix products of `flops` operations over `elements` operands and results."""
    rate = machine.peak_flops * machine.matrix_efficiency * machine.stack.matrix_efficiency
    traffic = machine.matrix_traffic * machine.element_bytes / (machine.memory_Bps * machine.memory_efficiency)
    return flops / rate + elements * traffic


def layer_device(work: LayerWork, shape: Shape, machine: Machine) -> DeviceTime:
    """Device time of one layer without its communication."""
    stack = machine.stack
    memory = machine.memory_Bps * machine.memory_efficiency
    cool = matrix_s(work.matrix_flops, work.matrix_elements, machine)
    skipped = 1 - shape.causal * (1 - stack.attention_work)
    half_precision = machine.attention_peak_flops * machine.matrix_efficiency * stack.attention_efficiency
    half_precision = half_precision * machine.attention_efficiency
    attention = work.attention_flops * skipped / half_precision
    core = attention + work.scores * stack.attention_bytes_forward / memory
    elementwise = (
        work.hidden_elements * stack.hidden_bytes + work.sharded_elements * stack.sharded_bytes
    ) / memory
    products = cool
    if machine.power_throttle:
        # Clocks fall at the power limit, and dense products are what draws the power.
        products = cool * (1 + machine.power_throttle * cool / (cool + core + elementwise))
    # Backward of fused attention does 5 products where forward does 2 (arXiv:2205.14135, section 3.1).
    factor = 2.5 if stack.attention == "fused" else 2.0
    back = factor * attention + work.scores * stack.attention_bytes_backward / memory
    return DeviceTime(products + core + elementwise, 2 * products + back + 2 * elementwise, core)


@dataclass(slots=True)
class LayerTime:
    """One layer on one micro-batch on one rank, with the tensor-parallel time inside (it sits on the same
    stream): wall time of both passes, and what of it the kernels and the communication take."""

    forward_s: Number
    backward_s: Number
    device_s: Number
    communication_s: Number


def layer_time(
    device: DeviceTime,
    comm_forward_s: Number,
    collectives: float,
    shape: Shape,
    layout: Layout,
    machine: Machine,
    comm_again_s: Number = 0.0,
) -> LayerTime:
    """Wall time of a layer from device time, tensor-parallel time of forward, and what the host needs to launch.

    Backward communicates as much as forward and `comm_again_s`; full recomputation repeats forward with its
    communication (arXiv:2104.04473, section 3.5).
    """
    stack = machine.stack
    full = flag(layout.recompute == RECOMPUTE_FULL)
    selective = flag(layout.recompute == RECOMPUTE_SELECTIVE)
    launch = stack.host_collective_s * collectives * flag(layout.tensor > 1)
    if stack.softmax_needs_multiple_of > 1:
        # Megatron's fused softmax takes only multiples (fused_softmax.py, is_kernel_available).
        odd = np.mod(layout.micro_batch * shape.heads / layout.tensor, stack.softmax_needs_multiple_of) != 0
        launch = launch + flag(odd) * stack.host_softmax_fallback_s
    masked = 1 + (stack.host_masked - 1) * (1 - shape.causal)
    host_forward = masked * stack.host_forward_s + launch
    host_backward = masked * stack.host_backward_s + launch + full * host_forward
    comm_backward = comm_forward_s * (1 + full) + comm_again_s
    device_backward = device.backward_s + full * device.forward_s + selective * _selective_s(device, stack)
    forward = smooth_maximum(device.forward_s + comm_forward_s, host_forward, stack.host_sharpness)
    backward = smooth_maximum(device_backward + comm_backward, host_backward, stack.host_sharpness)
    return LayerTime(forward, backward, device.forward_s + device_backward, comm_forward_s + comm_backward)


def _selective_s(device: DeviceTime, stack: Any) -> Number:
    rest = device.forward_s - device.attention_core_s
    return stack.selective_attention * device.attention_core_s + stack.selective_rest * rest


def vocabulary_time(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Logits, cross-entropy and their backward for one micro-batch on the last stage, without communication."""
    stack = machine.stack
    logits = tokens * shape.vocab / layout.tensor
    elements = tokens * shape.hidden + logits + shape.vocab * shape.hidden / layout.tensor
    rate = machine.attention_peak_flops * machine.matrix_efficiency * stack.vocabulary_efficiency
    if stack.vocabulary_padded == "tensor_parallel":
        # Products with a side that is no multiple of 8 miss the tensor cores' fast path (NVIDIA, "Matrix
        # Multiplication Background User's Guide", section 4.1).
        unaligned = (layout.tensor == 1) & (np.mod(shape.vocab, 8) != 0)
        if has(unaligned):
            rate = where(unaligned, rate * stack.unaligned_efficiency, rate)
    memory = machine.memory_Bps * machine.memory_efficiency
    traffic = machine.matrix_traffic * machine.element_bytes * elements / memory
    products = 6 * logits * shape.hidden / rate + 3 * traffic
    return smooth_maximum(
        products + logits * stack.vocabulary_bytes / memory, stack.host_vocabulary_s, stack.host_sharpness
    )


def embedding_time(tokens: Number, shape: Shape, layout: Layout, machine: Machine) -> Number:
    """Look-up and its backward on the first stage for one micro-batch."""
    memory = machine.memory_Bps * machine.memory_efficiency
    return tokens * shape.hidden * machine.stack.embedding_bytes / memory
