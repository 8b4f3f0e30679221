"""One iteration, assembled: the function that every prediction, fit, search and sweep calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.model.compute import embedding_time, layer_device, layer_time, vocabulary_time
from wirecost.model.cores import bubble_s, slowdown, slowed
from wirecost.model.dataparallel import compression_s, data_parallel, gradient_bytes, optimizer_s
from wirecost.model.experts import context_forward_s, expert_forward_s
from wirecost.model.flops import layer_work
from wirecost.model.inputs import Layout, Machine, Number, Shape, blend, flag, has, where
from wirecost.model.jitter import slowest
from wirecost.model.launches import DECODER_LAUNCHES, host_wait_s, launches_of_stage
from wirecost.model.memory import Memory, memory
from wirecost.model.pipeline import schedule, tied_embedding_s
from wirecost.model.tensor import forward as forward_tensor
from wirecost.model.tensor import tensor_group, vocabulary_s


@dataclass(slots=True)
class Iteration:
    """Seconds of one iteration on the busiest rank; the parts sum to `total_s`.

    `compute_s` kernels run; `host_s` the device waits for launches (those of collectives are in the collectives'
    parts); `bubble_s` for other stages; the rest is exposed communication and what an iteration does once.
    `hidden_comm_s` runs under compute; `uneven_s` is what the mean stage of a pipeline computes less than the
    busiest, and waits more.
    """

    total_s: Number
    compute_s: Number
    host_s: Number
    bubble_s: Number
    tensor_s: Number
    context_expert_s: Number
    pipeline_s: Number
    gradient_s: Number
    parameter_s: Number
    embedding_sync_s: Number
    optimizer_s: Number
    other_s: Number
    straggler_s: Number
    hidden_comm_s: Number
    uneven_s: Number
    forward_s: Number  # of one micro-batch on the busiest stage
    backward_s: Number
    ends_s: Number  # embedding and vocabulary layer of one micro-batch, forward and backward
    rank_parameters: Number

    @property
    def exposed_comm_s(self) -> Number:
        return (
            self.tensor_s
            + self.context_expert_s
            + self.pipeline_s
            + self.gradient_s
            + self.parameter_s
            + self.embedding_sync_s
        )


def rank_parameters(shape: Shape, layout: Layout) -> Number:
    """Parameters on the fullest rank: its layers' shard (experts further divided), and the embedding's."""
    layers = np.ceil((shape.layers + shape.decoder_layers) / layout.pipeline)
    mean = (shape.layers * shape.layer_parameters + shape.decoder_layers * shape.decoder_layer_parameters) / (
        shape.layers + shape.decoder_layers
    )
    experts = shape.expert_parameters
    layer = (mean - experts) / layout.tensor + experts / (layout.tensor * layout.expert)
    ends = shape.embedding_parameters + flag(layout.pipeline <= 1) * shape.other_parameters
    return layers * layer + ends / layout.tensor


def iterate(shape: Shape, layout: Layout, machine: Machine) -> Iteration:
    """Predicts one iteration for every configuration. Shapes broadcast; see `wirecost.model.inputs`."""
    turns: Number = None
    if machine.cores is not None:
        factor, turns = slowdown(layout, machine)
        machine = slowed(machine, factor)
    stack = machine.stack
    sequence = shape.sequence
    tokens = layout.micro_batch * sequence / layout.context
    device = layer_device(layer_work(shape, layout, sequence=sequence), shape, machine)
    members = tensor_group(layout, machine)
    tensor_time = forward_tensor(tokens, 2.0, members, shape, layout, machine)
    tensor, activation = tensor_time.layer_s, tensor_time.activation_s
    context_expert = context_forward_s(device.attention_core_s, sequence, shape, layout, machine)
    context_expert = context_expert + expert_forward_s(tokens, shape, layout, machine)
    layer = layer_time(device, tensor + context_expert, 2.0, shape, layout, machine, tensor_time.again_s)
    layers = shape.layers
    forward, backward = layers * layer.forward_s, layers * layer.backward_s
    busy_device, busy_comm = layers * layer.device_s, layers * layer.communication_s
    head_tokens, head_activation = tokens, activation + tensor_time.head_again_s
    if has(shape.decoder_layers > 0):
        out = shape.decoder_sequence
        out_tokens = layout.micro_batch * out / layout.context
        work = layer_work(shape, layout, sequence=out, keys=sequence, cross=True)
        other_tensor_time = forward_tensor(out_tokens, 3.0, members, shape, layout, machine)
        other_tensor = other_tensor_time.layer_s
        # A decoder layer launches half as much again: cross attention and its norm.
        other = layer_time(
            layer_device(work, shape, machine),
            other_tensor,
            3.0,
            shape,
            layout,
            _longer(machine),
            other_tensor_time.again_s,
        )
        forward = forward + shape.decoder_layers * other.forward_s
        backward = backward + shape.decoder_layers * other.backward_s
        busy_device = busy_device + shape.decoder_layers * other.device_s
        busy_comm = busy_comm + shape.decoder_layers * other.communication_s
        head_tokens = where(shape.decoder_layers > 0, out_tokens, tokens)
        head_activation = where(
            shape.decoder_layers > 0,
            other_tensor_time.activation_s + other_tensor_time.head_again_s,
            head_activation,
        )
        layers = layers + shape.decoder_layers
    vocabulary_comm = vocabulary_s(head_tokens, head_activation, members, layout, machine)
    vocabulary = vocabulary_time(head_tokens, shape, layout, machine)
    embedding_comm = activation  # the vocabulary-parallel embedding's output is all-reduced
    embedding = embedding_time(tokens, shape, layout, machine)
    first, last = embedding + embedding_comm, vocabulary + vocabulary_comm
    timing = schedule((forward + backward) / layers, layers, first, last, tokens, shape, layout, machine)
    if turns is not None:
        timing.bubble_s = bubble_s(timing.busy_s, timing.bubble_s, turns)
    # The busiest stage's parts: its share of the layers' device, communication and launch time.
    single = flag(layout.pipeline <= 1)
    share = blend(single, 1.0, timing.layers_of_stage / layers)
    m = layout.accumulation
    device_s = m * share * busy_device
    comm_s = m * share * busy_comm
    ends = blend(single, embedding + vocabulary, np.maximum(embedding, vocabulary))
    ends_comm = blend(single, embedding_comm + vocabulary_comm, np.maximum(embedding_comm, vocabulary_comm))
    compute = device_s + m * ends
    tensor_total = comm_s + m * ends_comm
    total_forward_comm = np.maximum(tensor + context_expert, 1e-30)
    ce_total = comm_s * (context_expert / total_forward_comm)
    held = rank_parameters(shape, layout)
    rank_forward, rank_backward = share * forward, share * backward
    data = data_parallel(
        held,
        timing.layers_of_stage,
        rank_forward,
        rank_backward + last,
        layout,
        machine,
        shape.embedding_parameters / layout.tensor,
        shape.tied * (shape.embedding_parameters + shape.other_parameters) / layout.tensor,
    )
    tied = tied_embedding_s(shape, layout, gradient_bytes(layout, machine), machine)
    optimizer = optimizer_s(held, layout, machine)
    host = np.maximum(timing.busy_s - compute - tensor_total, 0.0)
    compute = timing.busy_s - host - tensor_total
    hidden = np.maximum(data.total_s - data.gradient_s - data.parameter_s, 0.0)
    # What hides under launches and other communication slows no kernels down.
    contention = data.contention * np.minimum(hidden, compute)
    straggler = 0.0 * compute
    if stack.straggler:
        nodes = np.maximum(layout.world / machine.gpus_per_node, 1.0)
        straggler = stack.straggler * np.log2(nodes) * (timing.busy_s + timing.bubble_s)
    # Where hosts compute, their pace is computing's.
    cores = machine.cores
    lag = 0.0 * compute
    if cores is not None:
        lag = stack.host_jitter * slowest(np.minimum(layout.world, cores.count)) * (compute + host)
    other_s = stack.iteration_s + compression_s(held, layout, machine)
    total = (
        timing.busy_s
        + timing.bubble_s
        + timing.transfer_s
        + data.gradient_s
        + data.parameter_s
        + contention
        + tied
        + optimizer
        + other_s
        + straggler
        + lag
    )
    waited = data.gradient_s + data.parameter_s + tied
    # Forward and backward, 2 each; 3 in a decoder layer with cross attention.
    collectives = flag(layout.tensor > 1) * share * (4 * shape.layers + 6 * shape.decoder_layers)
    launches = launches_of_stage(share, shape, layout)
    waits = host_wait_s(
        total, waited, launches, timing.layers_of_stage, layout, stack, machine.gpus_per_node, collectives
    )
    host, total = host + waits.all_s - waits.communication_s, total + waits.all_s
    # The quicker ranks wait in whatever they do together.
    others = lag + waits.others_s
    in_tensor = flag((layout.tensor > 1) & (layout.data <= 1) & (layout.pipeline <= 1))
    in_pipeline = flag(layout.pipeline > 1)
    return Iteration(
        total_s=total,
        compute_s=compute + contention,
        host_s=host,
        bubble_s=timing.bubble_s,
        tensor_s=tensor_total - ce_total + waits.tensor_s + in_tensor * others,
        context_expert_s=ce_total,
        pipeline_s=timing.transfer_s + waits.transfer_s + in_pipeline * others,
        gradient_s=data.gradient_s + (1 - in_tensor - in_pipeline) * others,
        parameter_s=data.parameter_s + waits.gather_s,
        embedding_sync_s=tied,
        optimizer_s=optimizer,
        other_s=other_s,
        straggler_s=straggler,
        hidden_comm_s=hidden,
        uneven_s=timing.uneven_s,
        forward_s=rank_forward,
        backward_s=rank_backward,
        ends_s=ends,
        rank_parameters=held,
    )


def iterate_memory(shape: Shape, layout: Layout, machine: Machine) -> Memory:
    """Memory of the fullest rank for every configuration."""
    return memory(rank_parameters(shape, layout), shape, layout, machine)


class _LongerHost:
    """A stack whose layer launches as much as a decoder's; everything else is the stack's own."""

    def __init__(self, stack: object) -> None:
        self._stack = stack

    def __getattr__(self, name: str) -> object:
        value = getattr(self._stack, name)
        return DECODER_LAUNCHES * value if name in ("host_forward_s", "host_backward_s") else value


def _longer(machine: Machine) -> Machine:
    from dataclasses import replace

    return replace(machine, stack=_LongerHost(machine.stack))
