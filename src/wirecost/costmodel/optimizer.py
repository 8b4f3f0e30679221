"""The passes over memory after the gradients are known: their compression, and the optimizer."""

from __future__ import annotations

import numpy as np

from wirecost.costmodel.inputs import HeldParameters, Layout, Machine
from wirecost.costmodel.numbers import Number, flag, has, where
from wirecost.costmodel.sharding import state_shards


def compression_s(parameters: Number, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of compressing gradients for the wire and restoring them: passes over memory."""
    if not has(layout.compression_bytes > 0):
        return parameters * 0.0
    several = flag(layout.data * layout.context > 1)
    traffic = layout.trained * layout.compression_bytes
    return several * parameters * traffic / (machine.memory_Bps * machine.memory_efficiency)


def optimizer_s(parameters: HeldParameters, layout: Layout, machine: Machine) -> Number:
    """Returns the seconds of Adam's reads and writes for the parameters that this rank updates."""
    shards = state_shards(layout, machine)
    sharded = parameters.total / shards
    if has(parameters.experts > 0):
        held = np.maximum(shards / layout.expert, 1.0)
        sharded = (parameters.total - parameters.experts) / shards + parameters.experts / held
    share = where(layout.sharding >= 1, sharded, parameters.total)
    traffic = machine.stack.iteration.optimizer_bytes * layout.trained
    return share * traffic / (machine.memory_Bps * machine.memory_efficiency)
