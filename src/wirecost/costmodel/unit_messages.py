"""The messages of ZeRO-3: the units whose parameters are gathered together.

With `root_gathered_once` they are those of the engine, which uses FSDP2 (`wirecost.train.parallel.zero3`): every
layer is a unit. With a tied embedding the root holds both ends of the model, and stays gathered from forward to
backward. Without one the embedding and the output layer are units like the layers, and the root holds nothing.
`tests/integration/train/test_sharded.py` holds the number of messages and their bytes against the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.collectives import Group, gather_s
from wirecost.costmodel.inputs import HeldParameters, Machine
from wirecost.costmodel.numbers import Number, flag, has


@dataclass(slots=True)
class UnitMessages:
    """The messages of stage 3, in bytes on the wire: `layers` ones of the layers' parameters, and in a stack that
    gathers the root once those of the units at the ends of the model."""

    layers: Number
    weights: Number  # of all layers
    gradients: Number
    gradient_share: Number = 1.0  # bytes of gradients over bytes of weights
    root: Number = 0.0  # weights that stay gathered from forward to backward
    first: Number = 0.0  # weights of the embedding, where it is a unit of its own
    last: Number = 0.0  # weights of the output layer, likewise

    def gather_s(self, members: Group, machine: Machine) -> Number:
        """Returns the seconds of gathering each unit once, but for the root and the embedding."""
        layers = self.layers * gather_s(self.weights / self.layers, members, machine)
        return layers + _once_s(self.last, members, machine)

    def first_gather_s(self, members: Group, machine: Machine) -> Number:
        """Returns the seconds of gathering the embedding where it is a unit."""
        return _once_s(self.first, members, machine)

    def root_gather_s(self, members: Group, machine: Machine) -> Number:
        """Returns the seconds of gathering the root."""
        return _once_s(self.root, members, machine)

    def scatter_s(self, members: Group, machine: Machine) -> Number:
        """Returns the seconds of reducing and scattering the gradients of all units."""
        time = self.layers * gather_s(self.gradients / self.layers, members, machine, "reduce_scatter")
        for weights in (self.root, self.first, self.last):
            time = time + _once_s(self.gradient_share * weights, members, machine, "reduce_scatter")
        return time


def _once_s(size_bytes: Number, members: Group, machine: Machine, op: str = "all_gather") -> Number:
    """Returns the seconds of one message; 0 for a unit without parameters, which sends none."""
    if not has(size_bytes > 0):
        return 0.0
    return flag(size_bytes > 0) * gather_s(size_bytes, members, machine, op)


def unit_messages(
    parameters: HeldParameters, weights: Number, gradients: Number, machine: Machine
) -> UnitMessages:
    """Returns the messages for the parameters of a rank.

    Args:
        weights: bytes of the parameters on the wire.
        gradients: bytes of their gradients on the wire.
    """
    costs = machine.stack.data_parallel
    layers = np.maximum(parameters.layers, 1.0) * costs.shard_messages
    if not costs.root_gathered_once:
        return UnitMessages(layers, weights, gradients)
    # The units of FSDP2 in the engine: the root holds what others share, as a tied embedding.
    ends = [part * machine.element_bytes for part in (parameters.root, parameters.first, parameters.last)]
    share = sum(ends) / weights
    return UnitMessages(layers, weights - sum(ends), gradients * (1 - share), gradients / weights, *ends)
