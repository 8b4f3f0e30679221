"""Predicts one iteration from its stages. Every prediction, fit, search and sweep calls this function."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wirecost.costmodel.host_launch import Waits
from wirecost.costmodel.inputs import HeldParameters, Layout, Machine, Shape
from wirecost.costmodel.layers import ends_time, layers_time
from wirecost.costmodel.memory import Memory, memory
from wirecost.costmodel.numbers import Number, blend, flag, has, where
from wirecost.costmodel.pipeline import PipelineTime, PipelineWork, ends_are_shorter, schedule
from wirecost.costmodel.sharding import expert_blocks
from wirecost.costmodel.shared_cores import bubble_s, sharing
from wirecost.costmodel.stages import LagTime, OnceTime, StageTime, lag_time, launch_waits, once_time, stage_time


@dataclass(slots=True)
class Iteration:
    """Seconds of one iteration on the busiest rank; the parts sum to `total_s`.

    Kernels run for `compute_s`. The device waits for launches for `host_s` (those of collectives are in the
    collectives' parts) and for other stages for `bubble_s`. The rest is exposed communication and what an
    iteration does once. `hidden_comm_s` runs under compute; `uneven_s` is how much less the mean stage of a
    pipeline computes than the busiest, and how much longer it waits."""

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
    partial_gradient_s: Number  # of `gradient_s`, the sum of what tensor-parallel ranks each have a part of
    forward_s: Number  # of one micro-batch on the busiest stage
    backward_s: Number
    ends_s: Number  # embedding and vocabulary layer of one micro-batch, forward and backward
    rank_parameters: Number

    @property
    def exposed_comm_s(self) -> Number:
        """Returns the seconds of exposed communication."""
        return (
            self.tensor_s
            + self.context_expert_s
            + self.pipeline_s
            + self.gradient_s
            + self.parameter_s
            + self.embedding_sync_s
        )

    @property
    def comm_fraction(self) -> Number:
        """Returns exposed communication over the iteration time, with the waits of pipeline stages for each other,
        which are part of their receives (docs/explanation/measurement.md)."""
        return (self.exposed_comm_s + self.bubble_s + self.uneven_s) / self.total_s


@dataclass(slots=True)
class Stages:
    """The records that an iteration is assembled from."""

    pipeline: PipelineTime
    stage: StageTime
    parameters: HeldParameters
    once: OnceTime
    lag: LagTime
    waits: Waits


def rank_parameters(shape: Shape, layout: Layout) -> Number:
    """Returns the parameters on the fullest rank: its layers' shard (experts further divided), and the
    embedding's."""
    layers = np.ceil((shape.layers + shape.decoder_layers) / layout.pipeline)
    mean = (shape.layers * shape.layer_parameters + shape.decoder_layers * shape.decoder_layer_parameters) / (
        shape.layers + shape.decoder_layers
    )
    layer = _split(mean - shape.expert_parameters, shape.whole, layout)
    # If there are several stages, the first one holds the embedding, the last the head and its copy of a tied
    # embedding.
    single = flag(layout.pipeline <= 1)
    other = _split(shape.other_parameters, shape.whole_ends, layout)
    embedding = shape.embedding_parameters / layout.tensor
    ends = blend(single, embedding + other, np.maximum(embedding, other + _shared(shape) * embedding))
    shorter = ends_are_shorter(shape.layers + shape.decoder_layers, layout, shape.predicted)
    if has(shorter):
        # First and last stage have one layer less than the others.
        own = layer + shape.latent_whole * (1 - 1 / layout.tensor)
        own = own + shape.expert_parameters / _expert_shards(layout)
        ends = where(shorter, np.maximum(ends - own, 0.0), ends)
    held = layers * layer + ends + rank_experts(shape, layout)
    if has(shape.latent_whole > 0):
        held = held + layers * shape.latent_whole * (1 - 1 / layout.tensor)
    if has(shape.predicted > 0):
        module = shape.module_parameters - shape.module_experts
        held = held + _further_modules(shape, layout) * module / layout.tensor
    return held


def _counted(shape: Shape, machine: Machine) -> Shape:
    """Returns a shape without what only stacks with `small_collectives` count."""
    if machine.stack.tensor_parallel.small_collectives:
        return shape
    return replace(shape, whole=0.0, whole_ends=0.0, repeated_ends=0.0, masked=0.0)


def _split(parameters: Number, whole: Number, layout: Layout) -> Number:
    """Returns how many of some parameters a tensor-parallel rank has, of which every rank has `whole`."""
    return (parameters - whole) / layout.tensor + whole


def _further_modules(shape: Shape, layout: Layout) -> Number:
    """Returns the modules of multi-token prediction that the fullest rank has besides its layers. Where layers
    don't divide evenly over stages, modules take the place of layers on the last one."""
    layers = shape.layers + shape.decoder_layers
    free = np.ceil(layers / layout.pipeline) * layout.pipeline - layers
    return np.maximum(shape.predicted - free, 0.0)


def _shared(shape: Shape) -> Number:
    """Returns 1 where the last stage has a copy of the embedding, whose gradients both copies sum: for a tied
    output layer, and for multi-token prediction."""
    if not has(shape.predicted > 0):
        return shape.tied
    return np.maximum(shape.tied, flag(shape.predicted > 0))


def rank_experts(shape: Shape, layout: Layout) -> Number:
    """Returns the parameters of experts on the fullest rank. Where experts are divided over more ranks than are
    data-parallel, tensor parallelism splits them less."""
    if not has(shape.expert_parameters > 0):
        return 0.0
    layers = np.ceil((shape.layers + shape.decoder_layers) / layout.pipeline)
    experts = layers * shape.expert_parameters
    if has(shape.predicted > 0):
        experts = experts + _further_modules(shape, layout) * shape.module_experts
    return experts / _expert_shards(layout)


def _expert_shards(layout: Layout) -> Number:
    """Returns the number of ranks over which the experts of a layer are divided."""
    tensor = np.minimum(
        layout.tensor, np.maximum(layout.tensor * layout.data * layout.context / layout.expert, 1.0)
    )
    return tensor * layout.expert


def iterate(shape: Shape, layout: Layout, machine: Machine) -> Iteration:
    """Predicts one iteration for every configuration. Fields broadcast; see `wirecost.costmodel.numbers`."""
    shape = _counted(shape, machine)
    turns: Number | None = None
    if machine.shared_cores is not None:
        shared = sharing(layout, machine.shared_cores, machine.gpus_per_node)
        machine, turns = machine.slowed(shared.slowdown), shared.turns
    layers = layers_time(shape, layout, machine)
    ends = ends_time(layers, shape, layout, machine)
    work = PipelineWork(
        layer_s=(layers.forward_s + layers.backward_s) / layers.count,
        layers=layers.count,
        first_s=ends.first_s,
        last_s=ends.last_s,
        tokens=layers.tokens,
        forward_share=layers.forward_s / (layers.forward_s + layers.backward_s),
        weight_share=layers.weight_s / (layers.forward_s + layers.backward_s),
    )
    pipeline = schedule(work, shape, layout, machine)
    if turns is not None:
        pipeline.bubble_s = bubble_s(pipeline.busy_s, pipeline.bubble_s, turns)
    stage = stage_time(layers, ends, pipeline, shape, layout, machine)
    parameters = held_parameters(pipeline.layers_of_stage, shape, layout)
    once = once_time(stage, parameters, work.last_s, layers.members, layout, machine)
    lag = lag_time(stage, pipeline, layout, machine)
    total_s = _device_s(pipeline, once, lag)
    waits = launch_waits(total_s, once, stage, layout, machine)
    return _assembled(total_s, Stages(pipeline, stage, parameters, once, lag, waits), layout)


def _device_s(pipeline: PipelineTime, once: OnceTime, lag: LagTime) -> Number:
    """Returns the seconds of an iteration whose host is never the slower one."""
    return (
        pipeline.busy_s
        + pipeline.bubble_s
        + pipeline.transfer_s
        + once.data.gradient_s
        + once.partial_s
        + once.data.parameter_s
        + once.contention_s
        + once.tied_s
        + once.optimizer_s
        + once.other_s
        + lag.straggler_s
        + lag.host_s
    )


def _assembled(device_s: Number, stages: Stages, layout: Layout) -> Iteration:
    """Returns the iteration of which the stages take `device_s` without the waits for the host."""
    pipeline, stage, once = stages.pipeline, stages.stage, stages.once
    waits, lag = stages.waits, stages.lag
    # The faster ranks wait in every joint operation.
    others = lag.host_s + waits.others_s
    in_tensor = flag((layout.tensor > 1) & (layout.data <= 1) & (layout.pipeline <= 1))
    in_pipeline = flag(layout.pipeline > 1)
    return Iteration(
        total_s=device_s + waits.all_s,
        compute_s=stage.compute_s + once.contention_s,
        host_s=stage.host_s + waits.all_s - waits.communication_s,
        bubble_s=pipeline.bubble_s,
        tensor_s=stage.communication_s - stage.context_expert_s + waits.tensor_s + in_tensor * others,
        context_expert_s=stage.context_expert_s,
        pipeline_s=pipeline.transfer_s + waits.transfer_s + in_pipeline * others,
        gradient_s=once.data.gradient_s + once.partial_s + (1 - in_tensor - in_pipeline) * others,
        parameter_s=once.data.parameter_s + waits.gather_s,
        embedding_sync_s=once.tied_s,
        optimizer_s=once.optimizer_s,
        other_s=once.other_s,
        straggler_s=lag.straggler_s,
        hidden_comm_s=once.hidden_s,
        uneven_s=pipeline.uneven_s,
        partial_gradient_s=once.partial_s,
        forward_s=stage.forward_s,
        backward_s=stage.backward_s,
        ends_s=stage.ends_s,
        rank_parameters=stages.parameters.total,
    )


def held_parameters(layers: Number, shape: Shape, layout: Layout) -> HeldParameters:
    """Returns the parameters of the fullest rank, which has `layers` layers."""
    other = _split(shape.other_parameters, shape.whole_ends, layout)
    return HeldParameters(
        total=rank_parameters(shape, layout),
        layers=layers,
        tied=_shared(shape) * shape.embedding_parameters / layout.tensor,
        root=shape.tied * (shape.embedding_parameters / layout.tensor + other),
        first=(1 - shape.tied) * shape.embedding_parameters / layout.tensor,
        last=(1 - shape.tied) * other,
        experts=rank_experts(shape, layout),
        expert_blocks=expert_blocks(layers, shape, layout),
        partial=layers * (shape.whole + shape.latent_whole) + shape.whole_ends - shape.repeated_ends,
    )


def iterate_memory(shape: Shape, layout: Layout, machine: Machine) -> Memory:
    """Predicts the memory of the fullest rank for every configuration."""
    shape = _counted(shape, machine)
    return memory(rank_parameters(shape, layout), rank_experts(shape, layout), shape, layout, machine)
