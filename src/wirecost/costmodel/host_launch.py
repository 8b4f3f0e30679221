"""Time that the host takes to launch an iteration's kernels, and how long the device waits for it.

The formulas of a layer take the host into account layer by layer. Where runs determined the host's time of a whole
iteration it counts as a whole: the host goes on while the device waits for the network, and the longer of the two
decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wirecost.costmodel.host_jitter import slowest
from wirecost.costmodel.inputs import RECOMPUTE_FULL, HostTimes, Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has, where
from wirecost.spec.stack_costs import DataParallelCosts, HostCosts

BACKWARD = 2 / 3
"""Backward's share of a micro-batch's launches."""
DECODER_LAUNCHES = 1.5
"""Launches of a layer with cross attention and its norm relative to a layer without."""
DECODER_COLLECTIVES = 3.0
"""Tensor-parallel all-reduces of forward of a layer with cross attention: after attention, after cross attention,
after the MLP. Backward has as many."""


def encoder_collectives(shape: Shape) -> Number:
    """Returns the number of tensor-parallel all-reduces of a layer's forward: after attention, after the MLP, and
    after the shared experts, whose products are split by themselves. Backward has as many."""
    if not has(shape.shared_experts > 0):
        return 2.0
    return 2.0 + shape.moe_share * flag(shape.shared_experts > 0)


@dataclass(slots=True)
class StageLaunches:
    """The launches of the host for one pipeline stage in one micro-batch."""

    share: Number  # of the launches of the model's layers
    layers: Number
    gathers: Number  # all-gathers of ZeRO-3
    collectives: Number = 0.0  # all-reduces of tensor-parallel ranks
    sequence_collectives: Number = 0.0  # with sequence parallelism, in place of them
    relative: Number = 1.0  # launch time of a layer relative to that of a GPT's


@dataclass(slots=True)
class Waits:
    """Seconds of an iteration that the device waits for its host, with the parts for launching collectives of
    tensor-parallel ranks, gathers of parameters and transfers between stages, and for other ranks' hosts. In a
    measurement these parts are inside the communication phases.
    """

    all_s: Number
    tensor_s: Number
    gather_s: Number
    transfer_s: Number
    others_s: Number

    @property
    def communication_s(self) -> Number:
        """Returns the seconds that a measurement counts as communication."""
        return self.tensor_s + self.gather_s + self.transfer_s + self.others_s


def tensor_collectives(shape: Shape) -> Number:
    """Returns the number of all-reduces with which tensor parallelism sums the layers' activations and their
    gradients, in forward and backward of one micro-batch (arXiv:1909.08053, section 3)."""
    return 2 * (encoder_collectives(shape) * shape.layers + DECODER_COLLECTIVES * shape.decoder_layers)


def sequence_collectives(shape: Shape) -> Number:
    """Returns the number of all-gathers and reduce-scatters that sequence parallelism has in place of those
    all-reduces."""
    encoder, decoder = (sum(_passes(n, shape)) for n in (encoder_collectives(shape), DECODER_COLLECTIVES))
    return encoder * shape.layers + decoder * shape.decoder_layers


def unit_gathers(layers: Number, shape: Shape, costs: DataParallelCosts, expert_layers: Number = 0.0) -> Number:
    """Returns how often ZeRO-3 gathers a unit and frees it again for one micro-batch: before forward and before
    backward, of every layer and of what the root holds.

    With `root_gathered_once` the counts are those of the engine. The root, which holds a tied embedding, stays
    gathered from forward to backward. Without one the root holds nothing, and the embedding and the output layer
    are units. `tests/integration/train/test_sharded.py` checks that the engine gathers as often.

    Args:
        layers: the number of layers on the rank.
        expert_layers: how many of them gather experts by themselves, because these are divided among ranks.
    """
    if not costs.root_gathered_once:
        return 2 * (layers + 1)
    return 2 * (layers + expert_layers) + 4 - 3 * shape.tied


def relative_launches(shape: Shape, host: HostCosts) -> Number:
    """Returns the time to launch a layer relative to that of a GPT, which has causal attention and one MLP of two
    products."""
    relative = 1 + (host.masked - 1) * (1 - shape.causal) + (host.experts - 1) * shape.moe_share
    if host.gated != 1:
        relative = relative + (host.gated - 1) * flag(shape.mlp_matrices > 2)
    return relative


def transfers(layout: Layout) -> Number:
    """Returns the number of transfers of a pipeline stage for one micro-batch: two for every neighbour, there and
    back, of each of the rank's stages."""
    neighbours = flag(layout.pipeline > 1) + flag(layout.pipeline > 2)
    return layout.virtual * 2 * neighbours


def _passes(all_reduces: Number, shape: Shape) -> tuple[Number, Number]:
    """Returns the numbers of a layer's collectives of sequence parallelism in forward and in backward.

    Each all-reduce becomes an all-gather and a reduce-scatter, and backward gathers the inputs of the layer's
    column-parallel products again (arXiv:2205.05198, section 4.2.2), except those of experts.

    Args:
        all_reduces: the number of all-reduces in each pass without sequence parallelism.
    """
    again = all_reduces - shape.moe_share
    return 2 * all_reduces, 2 * all_reduces + again


def tensor_launches_s(all_reduces: Number, shape: Shape, layout: Layout, host: HostTimes) -> tuple[Number, Number]:
    """Returns the seconds in which the host launches a layer's collectives of tensor parallelism for one
    micro-batch, in forward and in backward.

    Args:
        all_reduces: their number in each pass without sequence parallelism.
    """
    split = flag(layout.tensor > 1)
    whole_s = host.collective_s * all_reduces * split
    if host.sequence_collective_s is None or not has(layout.sequence_parallel > 0):
        return whole_s, whole_s
    forward_s, backward_s = (
        where(layout.sequence_parallel > 0, host.sequence_collective_s * count * split, whole_s)
        for count in _passes(all_reduces, shape)
    )
    return forward_s, backward_s


def with_decoder_layers(host: HostTimes) -> HostTimes:
    """Returns the launch times of a host whose layers have cross attention."""
    return replace(
        host, forward_s=DECODER_LAUNCHES * host.forward_s, backward_s=DECODER_LAUNCHES * host.backward_s
    )


def launches_of_stage(share: Number, shape: Shape, layout: Layout) -> Number:
    """Returns the busiest stage's share of the launches where it has `share` of the layers. The last stage is the
    busiest: it has the decoder's layers."""
    if not has((shape.decoder_layers > 0) & (layout.pipeline > 1)):
        return share
    more = DECODER_LAUNCHES - 1
    mine = share * (shape.layers + shape.decoder_layers)
    whole = shape.layers + DECODER_LAUNCHES * shape.decoder_layers
    launches = (mine + more * np.minimum(mine, shape.decoder_layers)) / whole
    return where(layout.pipeline > 1, launches, share)


def host_wait_s(
    total_s: Number, waited_s: Number, launches: StageLaunches, layout: Layout, machine: Machine
) -> Waits:
    """Returns how much longer than `total_s` an iteration takes because the host is still launching it.

    While gradients travel after backward the host gets at most `run_ahead_s` ahead: a launch queue is full then.
    ZeRO-3 waits a little for every unit, and a pipeline for every state, which the host always catches up with;
    but both launch more. Hybrid sharding all-reduces between nodes under the last backward only. Of hosts whose
    pace isn't steady the slowest decides.

    Args:
        waited_s: the part of `total_s` that the device waits for at once: gradients and parameters.
    """
    host, costs, gpus_per_node = machine.host, machine.stack.host, machine.gpus_per_node
    known = host.transfer_s is not None
    if not np.any(host.issue_s) and not np.any(host.shard_s) and not known:
        return Waits(*[0.0 * total_s] * 5)
    rounds = layout.accumulation
    tensor = rounds * launches.collectives * host.collective_s
    if host.sequence_collective_s is not None and has(layout.sequence_parallel > 0):
        scattered = rounds * launches.sequence_collectives * host.sequence_collective_s
        tensor = where(layout.sequence_parallel > 0, scattered, tensor)
    each_s = host.collective_s if host.transfer_s is None else host.transfer_s
    sending = rounds * transfers(layout) * each_s
    # Hybrid sharding has nothing to share on a node of one GPU.
    alone = (layout.node_sharding > 0) & (gpus_per_node <= 1)
    gathers = flag((layout.sharding == 3) & (layout.data * layout.context > 1) & np.logical_not(alone))
    gathering = gathers * rounds * launches.gathers * host.shard_s
    # Without measured launches of a whole micro-batch (`issue_s`), each layer takes `forward_s` and `backward_s`.
    alike = gathers
    if known:
        alike = np.maximum(gathers, flag((layout.pipeline > 1) & (host.issue_s <= 0)))
    full = flag(layout.recompute == RECOMPUTE_FULL)
    layer_s = launches.relative * ((1 + full) * host.forward_s + host.backward_s)
    units = alike * rounds * launches.layers * layer_s
    launching = rounds * launches.share * host.issue_s + host.issue_once_s
    launching = launching + tensor + sending + gathering + units
    between = (layout.node_sharding > 0) & (layout.world > gpus_per_node)
    under = where(between, BACKWARD * launching / rounds, np.inf)
    ahead = where(gathers > 0, under, np.inf if costs.run_ahead_s is None else costs.run_ahead_s)
    beyond = np.maximum(waited_s - ahead, 0.0) - total_s
    mean = np.maximum(launching + beyond, 0.0)
    longest = np.maximum(launching * (1 + costs.jitter * slowest(layout.world)) + beyond, 0.0)
    part = mean / np.maximum(launching, 1e-30)
    return Waits(longest, part * tensor, part * gathering, part * sending, longest - mean)
