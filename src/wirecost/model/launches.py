"""What the host takes to launch an iteration's kernels, and how long the device waits for it.

The formulas of a layer take the host into account layer by layer. Where runs told the host's time of a whole
iteration it counts as a whole: the host goes on while the device waits for the network, and the longer of the two
decides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wirecost.model.inputs import Layout, Number, Shape, flag, has, where
from wirecost.model.jitter import slowest

BACKWARD = 2 / 3
"""Its share of a micro-batch's launches."""
DECODER_LAUNCHES = 1.5
"""Of a layer with cross attention and its norm, over one without."""


class Waits(NamedTuple):
    """Seconds of an iteration that the device waits for its host; and what of them is for launching collectives of
    tensor-parallel ranks, gathers of parameters, transfers between stages, and for other ranks' hosts: a
    measurement finds those inside the phases of communication."""

    all_s: Number
    tensor_s: Number
    gather_s: Number
    transfer_s: Number
    others_s: Number

    @property
    def communication_s(self) -> Number:
        return self.tensor_s + self.gather_s + self.transfer_s + self.others_s


def launches_of_stage(share: Number, shape: Shape, layout: Layout) -> Number:
    """The busiest stage's share of the launches, where it has `share` of the layers: the last one, which has the
    decoder's."""
    if not has((shape.decoder_layers > 0) & (layout.pipeline > 1)):
        return share
    more = DECODER_LAUNCHES - 1
    mine = share * (shape.layers + shape.decoder_layers)
    whole = shape.layers + DECODER_LAUNCHES * shape.decoder_layers
    launches = (mine + more * np.minimum(mine, shape.decoder_layers)) / whole
    return where(layout.pipeline > 1, launches, share)


def host_wait_s(
    total_s: Number,
    waited_s: Number,
    share: Number,
    layers: Number,
    layout: Layout,
    stack: Any,
    gpus_per_node: Number = np.inf,
    collectives: Number = 0.0,
) -> Waits:
    """How much longer than `total_s` an iteration takes because the host is still launching it.

    While gradients travel after backward the host gets at most `run_ahead_s` ahead: a launch queue is full then.
    ZeRO-3 waits a little for every unit, and a pipeline for every state, which the host always catches up with;
    but ZeRO-3 launches more. A transfer between stages takes as long to launch as a collective, and each
    micro-batch has two for every neighbour, there and back. Hybrid sharding all-reduces between nodes under the
    last backward only. Of hosts whose pace isn't steady the slowest decides.

    Args:
        waited_s: of `total_s`, what the device waits for in one piece: gradients and parameters.
        share: of the model's launches that are this stage's.
        layers: of this stage.
        gpus_per_node: with one, hybrid sharding has nothing to share.
        collectives: of tensor-parallel ranks in a micro-batch, on this stage.
    """
    if not np.any(stack.host_issue_s) and not np.any(stack.host_shard_s):
        return Waits(*[0.0 * total_s] * 5)
    rounds = layout.accumulation
    tensor = rounds * collectives * stack.host_collective_s
    neighbours = flag(layout.pipeline > 1) + flag(layout.pipeline > 2)
    transfers = rounds * layout.virtual * 2 * neighbours * stack.host_collective_s
    alone = (layout.node_sharding > 0) & (gpus_per_node <= 1)
    gathers = flag((layout.sharding == 3) & (layout.data > 1) & np.logical_not(alone))
    # Before forward and before backward, of every layer and of what the root holds; where runs told nothing of the
    # layers' launches, those are as the formulas have them.
    gathering = gathers * rounds * 2 * (layers + 1) * stack.host_shard_s
    units = gathers * rounds * layers * (stack.host_forward_s + stack.host_backward_s)
    launching = rounds * share * stack.host_issue_s + stack.host_issue_once_s
    launching = launching + tensor + transfers + gathering + units
    between = (layout.node_sharding > 0) & (layout.world > gpus_per_node)
    under = where(between, BACKWARD * launching / rounds, np.inf)
    ahead = where(gathers > 0, under, np.inf if stack.run_ahead_s is None else stack.run_ahead_s)
    beyond = np.maximum(waited_s - ahead, 0.0) - total_s
    mean = np.maximum(launching + beyond, 0.0)
    longest = np.maximum(launching * (1 + stack.host_jitter * slowest(layout.world)) + beyond, 0.0)
    part = mean / np.maximum(launching, 1e-30)
    return Waits(longest, part * tensor, part * gathering, part * transfers, longest - mean)
