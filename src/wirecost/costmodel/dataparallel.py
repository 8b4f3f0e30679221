"""Gradient synchronization and ZeRO: the bytes that are sent for a rank's parameters, and the exposed time.

ZeRO's volumes are those of Rajbhandari et al. 2020 (arXiv:1910.02054, section 7): stages 0 to 2 move 2 x the
parameters an iteration, stage 3 moves 3 x, since it gathers in forward and again in backward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wirecost.costmodel.collectives import Group, all_reduce_s, all_to_all_s, gather_s, placed
from wirecost.costmodel.inputs import HeldParameters, Layout, Machine
from wirecost.costmodel.numbers import Number, blend, flag, has, where
from wirecost.costmodel.overlap import exposed_s
from wirecost.costmodel.sharding import data_group, expert_data_group, sharding_group
from wirecost.costmodel.unit_messages import unit_messages
from wirecost.spec import Stack


@dataclass(slots=True)
class Cover:
    """Seconds of one micro-batch's computation on the rank, under which communication can hide."""

    forward_s: Number
    backward_s: Number


@dataclass(slots=True)
class DataParallelTime:
    """Seconds for each iteration. The exposed parts add to compute; `total_s` includes the hidden time."""

    gradient_s: Number  # exposed
    parameter_s: Number  # exposed
    total_s: Number
    contention: Number  # how much longer compute takes for each second of it that compute hides


@dataclass(slots=True)
class _Exchange:
    """The bytes that a strategy exchanges and the groups in which it does so."""

    gradients: Number  # bytes on the wire
    weights: Number  # bytes on the wire
    members: Group  # ranks that hold the same parameters
    shard: Group  # ranks that share one copy of the state
    once_s: Number  # the all-reduce of shards between nodes, once an iteration
    last: Number  # share of the gradients that leaves only when backward ends
    owned: Number  # tensors of parameters on the rank


TENSORS_OF_LAYER = 7.0
"""Parameter tensors of a layer that ranks can own: four of attention, or their fusion, and those of the MLP and
the norms."""


def usual_bucket_bytes(stack: Stack, data: Number, stated: float) -> Number:
    """Returns the size in bytes of a bucket where a plan doesn't choose one: `stated`, or with Megatron-Core the
    larger of 40 million parameters and a million for each rank (its DistributedDataParallelConfig)."""
    if stack.data_parallel.buckets != "megatron":
        return stated
    return np.maximum(40e6, 1e6 * data) * stack.data_parallel.gradient_bytes


def gradient_bytes(layout: Layout, machine: Machine) -> Number:
    """Returns the bytes of one gradient on the wire."""
    stacks = machine.stack.data_parallel.gradient_bytes
    stacks = stacks if machine.element_bytes < 4 else max(stacks, 4.0)
    return where(layout.gradient_bytes > 0, layout.gradient_bytes, stacks)


def data_parallel(parameters: HeldParameters, cover: Cover, layout: Layout, machine: Machine) -> DataParallelTime:
    """Returns the exposed and total time of synchronizing a rank's gradients and parameters. Those of experts are
    synchronized among the ranks that hold the same experts, and hide under their share of the computation."""
    if not has(layout.data * layout.context > 1):
        nothing = parameters.total * 0.0
        return DataParallelTime(nothing, nothing, nothing, nothing)
    members = data_group(layout, machine)
    together = _synchronized(parameters, cover, members, layout, machine)
    if not has((parameters.experts > 0) & (layout.expert > 1)):
        return together
    share = parameters.experts / parameters.total
    dense = replace(parameters, total=parameters.total - parameters.experts, experts=0.0)
    layers = parameters.expert_blocks if machine.stack.data_parallel.root_gathered_once else parameters.layers
    experts = HeldParameters(np.maximum(parameters.experts, 1.0), layers, 0.0, 0.0)
    both = [
        _synchronized(held, Cover(part * cover.forward_s, part * cover.backward_s), ranks, layout, machine)
        for held, part, ranks in (
            (dense, 1 - share, members),
            (experts, share, expert_data_group(layout, machine)),
        )
    ]
    apart = DataParallelTime(
        both[0].gradient_s + both[1].gradient_s,
        both[0].parameter_s + both[1].parameter_s,
        both[0].total_s + both[1].total_s,
        both[0].contention,
    )
    return _blended(flag((parameters.experts > 0) & (layout.expert > 1)), apart, together)


def _synchronized(
    parameters: HeldParameters, cover: Cover, members: Group, layout: Layout, machine: Machine
) -> DataParallelTime:
    costs = machine.stack.data_parallel
    gradients = parameters.total * layout.trained * gradient_bytes(layout, machine)
    last: Number = 0.0
    if has(layout.bucketed > 0):
        last = _last_bucket(parameters, layout, machine)
    shard, once_s = sharding_group(gradients, members, layout, machine)
    tensors = TENSORS_OF_LAYER * np.maximum(parameters.layers, 1.0)
    weights = parameters.total * machine.element_bytes
    exchange = _Exchange(gradients, weights, members, shard, once_s, last, tensors)
    time = _all_reduced(exchange, cover, layout, machine)
    if not has(layout.sharding > 0):
        return time
    by_units = costs.every_micro_batch and costs.zero2_gathers == "micro_batch"
    fully = flag((layout.sharding == 3) | ((layout.sharding == 2) & by_units))
    simply = flag(layout.sharding >= 1) - fully
    if has(simply > 0):
        time = _blended(simply, _partly_sharded(exchange, cover, layout, machine), time)
    if has(fully > 0):
        time = _blended(fully, _fully_sharded(parameters, exchange, cover, layout, machine), time)
    time.contention = blend(fully, costs.shard_contention, costs.contention)
    return time


def _blended(share: Number, yes: DataParallelTime, no: DataParallelTime) -> DataParallelTime:
    return DataParallelTime(
        blend(share, yes.gradient_s, no.gradient_s),
        blend(share, yes.parameter_s, no.parameter_s),
        blend(share, yes.total_s, no.total_s),
        no.contention,
    )


def _all_reduced(exchange: _Exchange, cover: Cover, layout: Layout, machine: Machine) -> DataParallelTime:
    """Returns the time of stage 0: one all-reduce after backward, or in buckets under the last micro-batch's
    backward.
    """
    costs, members = machine.stack.data_parallel, exchange.members
    message = _message_bytes(gradient_bytes(layout, machine), layout, machine)
    summed = _sum_s(exchange.gradients, message, members, layout, machine)
    whole = members.several * (summed + costs.gradient_sync_s)
    exposed = whole
    if has(layout.bucketed > 0):
        # The last bucket is one message.
        last = exchange.last * exchange.gradients
        tail = members.several * _sum_s(last, np.inf, members, layout, machine)
        hidden = exposed_s(whole, cover.backward_s, costs.overlap, costs.contention)
        exposed = blend(flag(layout.bucketed > 0), np.maximum(hidden, tail), whole)
    return DataParallelTime(exposed, exchange.gradients * 0.0, whole, costs.contention)


def _partly_sharded(exchange: _Exchange, cover: Cover, layout: Layout, machine: Machine) -> DataParallelTime:
    """Returns the time of stages 1 and 2: reduce-scatter of gradients, gather of updated parameters, once an
    iteration.
    """
    costs = machine.stack.data_parallel
    several, shard = exchange.members.several, exchange.shard
    overlap, contention = costs.overlap, costs.contention
    hide = flag(layout.bucketed > 0)
    message = _message_bytes(gradient_bytes(layout, machine), layout, machine)
    owned = exchange.owned if costs.owned_tensors else None
    if owned is not None:
        message = exchange.gradients / np.minimum(owned, shard.size)
    scatter = gather_s(exchange.gradients, shard, machine, "reduce_scatter", message)
    # Hybrid sharding sums the shards between nodes bucket by bucket, as it scatters them.
    scatter = several * (scatter + costs.gradient_sync_s) + exchange.once_s
    message = _message_bytes(machine.element_bytes, layout, machine)
    weights = exchange.weights * layout.trained  # those that the optimizer changed
    if owned is not None:
        message = weights / np.minimum(owned, shard.size)
    gather = several * gather_s(weights, shard, machine, message_bytes=message)
    grad_once, par_once = scatter, gather
    more: Number = 0.0
    further: Number = 0.0
    if costs.every_micro_batch and has(layout.sharding == 2):
        # Stage 2 scatters in every micro-batch: all but the last also hide under the next one.
        each = scatter - exchange.once_s
        before = exposed_s(each, cover.forward_s + cover.backward_s, overlap, contention)
        rounds = flag(layout.sharding == 2) * (layout.accumulation - 1)
        more = rounds * blend(hide, before, each)
        further = rounds * each
    if has(layout.bucketed > 0):
        # What leaves last is gathered first: forward begins with the embedding.
        tail = several * gather_s(exchange.last * exchange.gradients, shard, machine, "reduce_scatter")
        head = several * gather_s(exchange.last * weights, shard, machine)
        hidden = exposed_s(scatter, cover.backward_s, overlap, contention)
        grad_once = blend(hide, np.maximum(hidden, tail), scatter)
        hidden = exposed_s(gather, cover.forward_s, overlap, contention)
        par_once = blend(hide, np.maximum(hidden, head), gather)
    total = scatter + gather + further
    return DataParallelTime(grad_once + more, par_once, total, contention)


def _fully_sharded(
    parameters: HeldParameters, exchange: _Exchange, cover: Cover, layout: Layout, machine: Machine
) -> DataParallelTime:
    """Returns the time of stage 3 (and of stage 2 if each micro-batch gathers): layer by layer, under compute.
    Latency counts for each layer's collectives.
    """
    costs, shard = machine.stack.data_parallel, exchange.shard
    units = unit_messages(parameters, exchange.weights, exchange.gradients, machine)
    gather = units.gather_s(shard, machine)
    root_gather = units.root_gather_s(shard, machine)
    first_gather = units.first_gather_s(shard, machine)
    scatter = units.scatter_s(shard, machine)
    again = (gather + first_gather) * (1 - flag(layout.sharding == 2))  # stage 2 keeps what it gathered
    if has(layout.secondary > 0):
        # Backward gathers from the node's own copy (hpZ).
        members = exchange.members
        inside = placed(members.per_node, members.per_node, members.rings, machine)
        near = units.gather_s(inside, machine) + units.first_gather_s(inside, machine)
        again = where(layout.secondary > 0, np.minimum(near, again), again)
    hide = flag(layout.bucketed > 0)
    overlap, contention = costs.shard_overlap * hide, costs.shard_contention

    def backward_s(scattering: Number) -> Number:
        if costs.scatter_overlap is None:
            return exposed_s(again + scattering, cover.backward_s, overlap, contention)
        hidden = exposed_s(again, cover.backward_s, overlap, contention)
        return hidden + exposed_s(scattering, cover.backward_s, costs.scatter_overlap * hide, contention)

    backward = backward_s(scatter)
    # Hybrid sharding sums the shards between nodes under the last backward.
    once = backward_s(scatter + exchange.once_s) - backward
    # No computation runs yet that could hide the root's gather, or else that of the embedding.
    unhidden = root_gather + first_gather
    forward = exposed_s(gather, cover.forward_s, overlap, contention) + unhidden
    total = gather + again + scatter + unhidden
    rounds = layout.accumulation
    return DataParallelTime(
        rounds * backward + once, rounds * forward, rounds * total + exchange.once_s, contention
    )


def _last_bucket(parameters: HeldParameters, layout: Layout, machine: Machine) -> Number:
    """Returns the share of the gradients that leaves only when backward ends: the last bucket, and with it the
    tied embedding. Buckets are filled with gradients before any compression. (PyTorch's smaller first bucket is
    only there where its size is left to PyTorch, which the engine never does.)"""
    plain = parameters.total * machine.element_bytes
    last = np.maximum(np.mod(plain, layout.bucket_bytes), parameters.tied * machine.element_bytes)
    if has(layout.last_bucket_bytes > 0):
        last = where(layout.last_bucket_bytes > 0, layout.last_bucket_bytes, last)
    return np.minimum(last / plain, 1.0)


def _message_bytes(element_bytes: Number, layout: Layout, machine: Machine) -> Number:
    """Returns the bytes of a bucket that is sent with so many bytes an element; infinite without buckets."""
    sent = element_bytes / machine.element_bytes
    message = where(layout.bucketed > 0, layout.bucket_bytes * sent, np.inf)
    if has(layout.mean_bucket_bytes > 0):
        message = where(layout.mean_bucket_bytes > 0, layout.mean_bucket_bytes * sent, message)
    return message


def _sum_s(size_bytes: Number, message_bytes: Number, members: Group, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of summing gradients: an all-reduce, or for compressed ones that no network sums other
    collectives."""
    time = all_reduce_s(size_bytes, members, machine, message_bytes)
    if has(layout.exchanged > 0):
        parts = all_to_all_s(size_bytes, members, machine) + gather_s(size_bytes, members, machine)
        time = where(layout.exchanged > 0, parts, time)
    if has(layout.factored > 0):
        time = where(layout.factored > 0, 2 * all_reduce_s(size_bytes / 2, members, machine), time)
    return time
