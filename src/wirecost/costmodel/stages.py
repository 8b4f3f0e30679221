"""The stages of an iteration, each computed from the records of the earlier ones: layers, ends, the busiest
pipeline stage, synchronisation, and waits of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.collectives import Group
from wirecost.costmodel.dataparallel import Cover, DataParallelTime, data_parallel, gradient_bytes
from wirecost.costmodel.host_jitter import slowest
from wirecost.costmodel.host_launch import (
    DECODER_LAUNCHES,
    StageLaunches,
    Waits,
    host_wait_s,
    launches_of_stage,
    relative_launches,
    sequence_collectives,
    tensor_collectives,
    unit_gathers,
)
from wirecost.costmodel.inputs import HeldParameters, Layout, Machine, Shape
from wirecost.costmodel.layers import EndsTime, LayersTime
from wirecost.costmodel.numbers import Number, blend, flag, has
from wirecost.costmodel.optimizer import compression_s, optimizer_s
from wirecost.costmodel.pipeline import PipelineTime, tied_embedding_s
from wirecost.costmodel.sharding import expert_blocks
from wirecost.costmodel.tensor import partial_gradients_s
from wirecost.spec import Stack


@dataclass(slots=True)
class StageTime:
    """The busiest stage of the pipeline. Seconds are those of an iteration; `forward_s`, `backward_s` and `ends_s`
    those of one micro-batch."""

    launches: StageLaunches
    compute_s: Number
    host_s: Number
    communication_s: Number
    context_expert_s: Number  # of the communication
    forward_s: Number
    backward_s: Number
    ends_s: Number


@dataclass(slots=True)
class OnceTime:
    """The work that an iteration does once, in seconds. `partial_s` is the sum of the gradients of which each
    tensor-parallel rank has a part. `contention_s` is the slowdown of compute by the
    communication that it hides, and by ZeRO-3's copies.
    """

    data: DataParallelTime
    partial_s: Number
    hidden_s: Number
    contention_s: Number
    tied_s: Number
    optimizer_s: Number
    other_s: Number


@dataclass(slots=True)
class LagTime:
    """What ranks wait for each other, in seconds: the slowest node, and the slowest host where hosts compute."""

    straggler_s: Number
    host_s: Number


def stage_time(
    layers: LayersTime, ends: EndsTime, pipeline: PipelineTime, shape: Shape, layout: Layout, machine: Machine
) -> StageTime:
    """Returns the busiest stage's parts: its share of the layers' device, communication and launch time."""
    single = flag(layout.pipeline <= 1)
    share = blend(single, 1.0, pipeline.layers_of_stage / layers.count)
    rounds = layout.accumulation
    device = rounds * share * layers.device_s
    communication = rounds * share * layers.communication_s
    own = blend(single, ends.embedding_s + ends.vocabulary_s, np.maximum(ends.embedding_s, ends.vocabulary_s))
    comm = blend(
        single,
        ends.embedding_comm_s + ends.vocabulary_comm_s,
        np.maximum(ends.embedding_comm_s, ends.vocabulary_comm_s),
    )
    kernels = device + rounds * own
    tensor = communication + rounds * comm
    host = np.maximum(pipeline.busy_s - kernels - tensor, 0.0)
    return StageTime(
        launches=_stage_launches(share, pipeline.layers_of_stage, shape, layout, machine.stack),
        compute_s=pipeline.busy_s - host - tensor,
        host_s=host,
        communication_s=tensor,
        context_expert_s=communication * layers.context_expert_share,
        forward_s=share * layers.forward_s,
        backward_s=share * layers.backward_s,
        ends_s=own,
    )


def _stage_launches(share: Number, layers: Number, shape: Shape, layout: Layout, stack: Stack) -> StageLaunches:
    """Returns the launches of a stage that has `layers` layers, `share` of the model's."""
    split = flag(layout.tensor > 1) * share
    launches = launches_of_stage(share, shape, layout)
    relative = relative_launches(shape, stack.host)
    if has(shape.decoder_layers > 0):
        relative = relative * launches * (shape.layers + DECODER_LAUNCHES * shape.decoder_layers) / layers
    return StageLaunches(
        share=launches,
        layers=layers,
        gathers=unit_gathers(layers, shape, stack.data_parallel, expert_blocks(layers, shape, layout)),
        collectives=split * tensor_collectives(shape),
        sequence_collectives=split * sequence_collectives(shape),
        relative=relative,
    )


def once_time(
    stage: StageTime, parameters: HeldParameters, last_s: Number, tensor: Group, layout: Layout, machine: Machine
) -> OnceTime:
    """Returns what an iteration does once: gradients and parameters of `parameters`, and the optimizer. `last_s`
    is what the last stage does besides its layers, `tensor` the tensor-parallel group."""
    # If stages are interleaved, the gradients of a chunk are complete while p micro-batches of the other chunks
    # are left, and its parameters are needed that much later (arXiv:2104.04473, figure 4).
    p, v = layout.pipeline, layout.virtual
    chunks = np.maximum(np.minimum(p, layout.accumulation) * (v - 1) / v, 1.0)
    cover = Cover(chunks * stage.forward_s, chunks * (stage.backward_s + last_s))
    data = data_parallel(parameters, cover, layout, machine)
    hidden = np.maximum(data.total_s - data.gradient_s - data.parameter_s, 0.0)
    # What hides under launches and other communication slows no kernels down.
    contention = data.contention * np.minimum(hidden, stage.compute_s)
    if (copied := machine.stack.data_parallel.shard_copy_bytes) and has(layout.sharding > 2):
        memory = machine.memory_Bps * machine.memory_efficiency
        copies = layout.accumulation * parameters.total * copied / memory
        contention = contention + flag((layout.sharding > 2) & (layout.data * layout.context > 1)) * copies
    partial: Number = parameters.total * 0.0
    if machine.stack.tensor_parallel.small_collectives:
        partial = partial_gradients_s(parameters.partial, tensor, layout, machine)
    return OnceTime(
        data=data,
        partial_s=partial,
        hidden_s=hidden,
        contention_s=contention,
        tied_s=tied_embedding_s(parameters.tied, layout, gradient_bytes(layout, machine), machine),
        optimizer_s=optimizer_s(parameters, layout, machine),
        other_s=machine.once_s + compression_s(parameters.total, layout, machine),
    )


def lag_time(stage: StageTime, pipeline: PipelineTime, layout: Layout, machine: Machine) -> LagTime:
    """Returns what ranks wait for the slowest of them."""
    straggler = 0.0 * stage.compute_s
    if share := machine.stack.iteration.straggler:
        nodes = np.maximum(layout.world / machine.gpus_per_node, 1.0)
        straggler = share * np.log2(nodes) * (pipeline.busy_s + pipeline.bubble_s)
    cores = machine.shared_cores
    host = 0.0 * stage.compute_s
    if cores is not None:
        # Where hosts compute, their pace is computing's.
        together = slowest(np.minimum(layout.world, cores.count))
        host = machine.stack.host.jitter * together * (stage.compute_s + stage.host_s)
    return LagTime(straggler, host)


def launch_waits(total_s: Number, once: OnceTime, stage: StageTime, layout: Layout, machine: Machine) -> Waits:
    """Returns what the device waits for its host to launch an iteration of `total_s`."""
    waited = once.data.gradient_s + once.partial_s + once.data.parameter_s + once.tied_s
    return host_wait_s(total_s, waited, stage.launches, layout, machine)
