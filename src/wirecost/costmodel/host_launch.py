"""Time that the host takes to launch an iteration's kernels, and how long the device waits for it.

The formulas of a layer take the host into account layer by layer. Where runs determined the host's time of a whole
iteration it counts as a whole: the host goes on while the device waits for the network, and the longer of the two
decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wirecost.costmodel.host_jitter import slowest
from wirecost.costmodel.inputs import HostTimes, Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has, where

BACKWARD = 2 / 3
"""Backward's share of a micro-batch's launches."""
DECODER_LAUNCHES = 1.5
"""Launches of a layer with cross attention and its norm relative to a layer without."""


@dataclass(slots=True)
class StageLaunches:
    """What the host launches for one stage of the pipeline in one micro-batch."""

    share: Number  # of the launches of the model's layers
    layers: Number
    collectives: Number = 0.0  # of tensor-parallel ranks


@dataclass(slots=True)
class Waits:
    """Seconds of an iteration that the device waits for its host, and what of them is for launching collectives
    of tensor-parallel ranks, gathers of parameters, transfers between stages, and for other ranks' hosts. A
    measurement finds those inside the phases of communication."""

    all_s: Number
    tensor_s: Number
    gather_s: Number
    transfer_s: Number
    others_s: Number

    @property
    def communication_s(self) -> Number:
        """What a measurement counts as communication."""
        return self.tensor_s + self.gather_s + self.transfer_s + self.others_s


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
    but ZeRO-3 launches more. A transfer between stages takes as long to launch as a collective, and each
    micro-batch has two for every neighbour, there and back. Hybrid sharding all-reduces between nodes under the
    last backward only. Of hosts whose pace isn't steady the slowest decides.

    Args:
        waited_s: what the device waits for in one piece, of `total_s`: gradients and parameters.
    """
    host, costs, gpus_per_node = machine.host, machine.stack.host, machine.gpus_per_node
    if not np.any(host.issue_s) and not np.any(host.shard_s):
        return Waits(*[0.0 * total_s] * 5)
    rounds = layout.accumulation
    tensor = rounds * launches.collectives * host.collective_s
    neighbours = flag(layout.pipeline > 1) + flag(layout.pipeline > 2)
    transfers = rounds * layout.virtual * 2 * neighbours * host.collective_s
    # Hybrid sharding has nothing to share on a node of one GPU.
    alone = (layout.node_sharding > 0) & (gpus_per_node <= 1)
    gathers = flag((layout.sharding == 3) & (layout.data > 1) & np.logical_not(alone))
    # Before forward and before backward, of every layer and of what the root holds; where runs did not determine
    # the layers' launches, those are as the formulas have them.
    gathering = gathers * rounds * 2 * (launches.layers + 1) * host.shard_s
    units = gathers * rounds * launches.layers * (host.forward_s + host.backward_s)
    launching = rounds * launches.share * host.issue_s + host.issue_once_s
    launching = launching + tensor + transfers + gathering + units
    between = (layout.node_sharding > 0) & (layout.world > gpus_per_node)
    under = where(between, BACKWARD * launching / rounds, np.inf)
    ahead = where(gathers > 0, under, np.inf if costs.run_ahead_s is None else costs.run_ahead_s)
    beyond = np.maximum(waited_s - ahead, 0.0) - total_s
    mean = np.maximum(launching + beyond, 0.0)
    longest = np.maximum(launching * (1 + costs.jitter * slowest(layout.world)) + beyond, 0.0)
    part = mean / np.maximum(launching, 1e-30)
    return Waits(longest, part * tensor, part * gathering, part * transfers, longest - mean)
