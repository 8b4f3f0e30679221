"""What the host takes to launch an iteration's kernels, and how long the device waits for it.

The formulas of a layer take the host into account layer by layer. Where runs told the host's time of a whole
iteration it counts as a whole: the host goes on while the device waits for the network, and the longer of the two
decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wirecost.model.inputs import Layout, Number, flag, where


def host_wait_s(
    total_s: Number,
    waited_s: Number,
    share: Number,
    layers: Number,
    layout: Layout,
    stack: Any,
    gpus_per_node: Number = np.inf,
) -> Number:
    """How much longer than `total_s` an iteration takes because the host is still launching it.

    While gradients travel after backward the host gets at most `run_ahead_s` ahead: a launch queue is full then.
    ZeRO-3 waits a little for every unit, and a pipeline for every state, which the host always catches up with;
    but ZeRO-3 launches more.

    Args:
        waited_s: of `total_s`, what the device waits for in one piece: gradients and parameters.
        share: of the model's layers that are this stage's.
        layers: of this stage.
        gpus_per_node: with one, hybrid sharding has nothing to share.
    """
    if not np.any(stack.host_issue_s) and not np.any(stack.host_shard_s):
        return 0.0 * total_s
    rounds = layout.accumulation
    launching = rounds * share * stack.host_issue_s + stack.host_issue_once_s
    alone = (layout.node_sharding > 0) & (gpus_per_node <= 1)
    gathers = flag((layout.sharding == 3) & (layout.data > 1) & np.logical_not(alone))
    # Before forward and before backward, of every layer and of what the root holds; where runs told nothing of the
    # layers' launches, those are as the formulas have them.
    units = 2 * (layers + 1) * stack.host_shard_s + layers * (stack.host_forward_s + stack.host_backward_s)
    launching = launching + gathers * rounds * units
    ahead = where(gathers > 0, np.inf, np.inf if stack.run_ahead_s is None else stack.run_ahead_s)
    return np.maximum(launching + np.maximum(waited_s - ahead, 0.0) - total_s, 0.0)
