"""Gradient synchronization and ZeRO: what moves for the parameters that a rank holds, and how much is exposed.

ZeRO's volumes are those of Rajbhandari et al. 2020 (arXiv:1910.02054, section 7): stages 0 to 2 move 2 x the
parameters an iteration, stage 3 moves 3 x, since it gathers in forward and again in backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.model.collectives import (
    Group,
    all_reduce_s,
    all_to_all_s,
    gather_s,
    group,
    hierarchical_all_reduce_s,
    placed,
)
from wirecost.model.inputs import Layout, Machine, Number, blend, flag, has, where
from wirecost.model.overlap import exposed_s


@dataclass(slots=True)
class DataParallelTime:
    """Seconds for each iteration. `exposed` parts add to compute; `total` counts what is hidden as well."""

    gradient_s: Number  # exposed
    parameter_s: Number  # exposed
    total_s: Number
    contention: Number  # for a second of it that compute hides, compute takes so many longer


def data_group(layout: Layout, machine: Machine) -> Group:
    return group(layout.data * layout.context, layout.data_stride, layout.world, machine)


def gradient_bytes(layout: Layout, machine: Machine) -> Number:
    """Bytes of one gradient on the wire."""
    stacks = machine.stack.gradient_bytes if machine.element_bytes < 4 else max(machine.stack.gradient_bytes, 4.0)
    return where(layout.gradient_bytes > 0, layout.gradient_bytes, stacks)


def data_parallel(
    parameters: Number,
    layers: Number,
    forward_s: Number,
    backward_s: Number,
    layout: Layout,
    machine: Machine,
    tied_parameters: Number = 0.0,
    root_parameters: Number = 0.0,
) -> DataParallelTime:
    """Exposed and total time for `parameters` on this rank in `layers` layers; `forward_s` and `backward_s` are
    one micro-batch's compute on this rank, `tied_parameters` the embedding's share of `parameters`,
    `root_parameters` that of what the embedding's unit and the head share."""
    stack = machine.stack
    if not has(layout.data * layout.context > 1):
        nothing = parameters * 0.0
        return DataParallelTime(nothing, nothing, nothing, nothing)
    members = data_group(layout, machine)
    several = members.several
    gradients = parameters * gradient_bytes(layout, machine)
    hide = flag(layout.bucketed > 0)
    overlap, contention = stack.data_parallel_overlap, stack.data_parallel_contention
    # Stage 0: all-reduce once, after backward or bucketed under the last micro-batch's backward.
    message = _message_bytes(gradient_bytes(layout, machine), layout, machine)
    whole = several * (_sum_s(gradients, members, layout, machine, message) + stack.gradient_sync_s)
    late = 0.0
    if has(layout.bucketed > 0):
        late = _last_bucket(parameters, tied_parameters, layout, machine)
    grad = whole
    if has(layout.bucketed > 0):
        # The last bucket is one message.
        tail = several * _sum_s(late * gradients, members, layout, machine)
        grad = blend(hide, np.maximum(exposed_s(whole, backward_s, overlap, contention), tail), whole)
    if not has(layout.sharding > 0):
        return DataParallelTime(grad, parameters * 0.0, whole, contention)
    weights = parameters * machine.element_bytes
    each = stack.sync_every_micro_batch
    by_units = each and stack.zero2_gathers == "micro_batch"
    fully = flag((layout.sharding == 3) | ((layout.sharding == 2) & by_units))
    simply = flag(layout.sharding >= 1) - fully
    par, total = parameters * 0.0, whole
    shard, once = _sharding_group(gradients, members, layout, machine)
    if has(simply > 0):
        # Stages 1 and 2: reduce-scatter gradients, gather updated parameters, once an iteration.
        message = _message_bytes(gradient_bytes(layout, machine), layout, machine)
        scatter = several * (
            gather_s(gradients, shard, machine, "reduce_scatter", message) + stack.gradient_sync_s
        )
        message = _message_bytes(machine.element_bytes, layout, machine)
        gather = several * gather_s(weights, shard, machine, message_bytes=message)
        grad_once, par_once = scatter, gather
        more, further = 0.0, 0.0
        if each and has(layout.sharding == 2):
            # Stage 2 scatters in every micro-batch: all but the last also hide under the next one.
            before = exposed_s(scatter, forward_s + backward_s, overlap, contention)
            rounds = flag(layout.sharding == 2) * (layout.accumulation - 1)
            more = rounds * blend(hide, before, scatter)
            further = rounds * scatter
        if has(layout.bucketed > 0):
            # What leaves last is gathered first: forward begins with the embedding.
            tail = several * gather_s(late * gradients, shard, machine, "reduce_scatter")
            head = several * gather_s(late * weights, shard, machine)
            grad_once = blend(hide, np.maximum(exposed_s(scatter, backward_s, overlap, contention), tail), scatter)
            par_once = blend(hide, np.maximum(exposed_s(gather, forward_s, overlap, contention), head), gather)
        grad = blend(simply, grad_once + more + once, grad)
        par = simply * par_once
        total = blend(simply, scatter + gather + further + once, whole)
    if has(fully > 0):
        inner = _fully_sharded(
            gradients, weights, root_parameters, layers, forward_s, backward_s, shard, layout, machine
        )
        rounds = layout.accumulation
        grad = blend(fully, rounds * inner.gradient_s + once, grad)
        par = blend(fully, rounds * inner.parameter_s, par)
        total = blend(fully, rounds * inner.total_s + once, total)
    return DataParallelTime(grad, par, total, blend(fully, stack.shard_contention, contention))


def _last_bucket(parameters: Number, tied_parameters: Number, layout: Layout, machine: Machine) -> Number:
    """The share of the gradients that leaves only when backward ends: the last bucket, and with it the tied
    embedding. Buckets are filled with gradients as they are, before any compression. (PyTorch's smaller first
    bucket is only there where its size is left to PyTorch, which the engine never does.)"""
    plain = parameters * machine.element_bytes
    last = np.maximum(np.mod(plain, layout.bucket_bytes), tied_parameters * machine.element_bytes)
    return np.minimum(last / plain, 1.0)


def _message_bytes(element_bytes: Number, layout: Layout, machine: Machine) -> Number:
    """A bucket with so many bytes an element on the wire: filled with gradients as they are, before any
    compression. Without buckets all of it is one message."""
    return where(layout.bucketed > 0, layout.bucket_bytes * element_bytes / machine.element_bytes, np.inf)


def _sum_s(
    size_bytes: Number, members: Group, layout: Layout, machine: Machine, message_bytes: Number = np.inf
) -> Number:
    """The all-reduce of gradients; compressed ones that no network sums take other collectives."""
    time = all_reduce_s(size_bytes, members, machine, message_bytes)
    if has(layout.exchanged > 0):
        parts = all_to_all_s(size_bytes, members, machine) + gather_s(size_bytes, members, machine)
        time = where(layout.exchanged > 0, parts, time)
    if has(layout.factored > 0):
        time = where(layout.factored > 0, 2 * all_reduce_s(size_bytes / 2, members, machine), time)
    return time


def _sharding_group(gradients: Number, members: Group, layout: Layout, machine: Machine) -> tuple[Group, Number]:
    """Who shares one copy of the state. Hybrid sharding keeps it inside nodes, and all-reduces each shard's
    gradient between them: that takes the seconds returned, once an iteration."""
    if not has(layout.node_sharding > 0):
        return members, 0.0
    hybrid = flag(layout.node_sharding > 0)
    inside = placed(members.per_node, members.per_node, members.rings, machine)
    levels = hierarchical_all_reduce_s(gradients, members, machine) - 2 * gather_s(gradients, inside, machine)
    once = members.several * hybrid * np.maximum(levels, 0.0)
    size = where(layout.node_sharding > 0, inside.size, members.size)
    per_node = where(layout.node_sharding > 0, inside.per_node, members.per_node)
    return placed(size, per_node, members.rings, machine), once


@dataclass(slots=True)
class _Sharded:
    """Seconds for each micro-batch."""

    gradient_s: Number
    parameter_s: Number
    total_s: Number


def _fully_sharded(
    gradients: Number,
    weights: Number,
    root_parameters: Number,
    layers: Number,
    forward_s: Number,
    backward_s: Number,
    shard: Group,
    layout: Layout,
    machine: Machine,
) -> _Sharded:
    """Stage 3 (and stage 2 where each micro-batch gathers): layer by layer, under compute. Latency counts for each
    layer's own collectives."""
    stack = machine.stack
    units = np.maximum(layers, 1.0) * stack.shard_messages
    root_gather, root_scatter = 0.0, 0.0
    if stack.root_gathered_once:
        # FSDP's root is what units share; its parameters stay from forward to backward.
        root = root_parameters * machine.element_bytes
        share = root / weights
        root_gather = gather_s(root, shard, machine)
        root_scatter = gather_s(share * gradients, shard, machine, "reduce_scatter")
        gradients, weights = gradients * (1 - share), weights - root
    gather = units * gather_s(weights / units, shard, machine)
    scatter = units * gather_s(gradients / units, shard, machine, "reduce_scatter") + root_scatter
    again = gather * (1 - flag(layout.sharding == 2))  # stage 2 keeps what it gathered
    hide = flag(layout.bucketed > 0)
    overlap, contention = stack.shard_overlap * hide, stack.shard_contention
    if stack.scatter_overlap is None:
        backward = exposed_s(again + scatter, backward_s, overlap, contention)
    else:
        backward = exposed_s(again, backward_s, overlap, contention) + exposed_s(
            scatter, backward_s, stack.scatter_overlap * hide, contention
        )
    return _Sharded(
        backward,
        # Nothing runs yet under which the root could hide.
        exposed_s(gather, forward_s, overlap, contention) + root_gather,
        gather + again + scatter + root_gather,
    )


def compression_s(parameters: Number, layout: Layout, machine: Machine) -> Number:
    """Compressing gradients for the wire and restoring them: element-wise passes over memory."""
    if not has(layout.compression_bytes > 0):
        return parameters * 0.0
    several = flag(layout.data * layout.context > 1)
    return several * parameters * layout.compression_bytes / (machine.memory_Bps * machine.memory_efficiency)


def optimizer_s(parameters: Number, layout: Layout, machine: Machine) -> Number:
    """Adam's reads and writes over memory bandwidth, for the parameters that this rank updates."""
    share = where(layout.sharding >= 1, parameters / (layout.data * layout.context), parameters)
    return share * machine.stack.optimizer_bytes / (machine.memory_Bps * machine.memory_efficiency)
