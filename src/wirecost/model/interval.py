"""How far a measurement may lie from its prediction.

A stack's `spread` is the 90 % quantile of |log(predicted / measured)| over rows that its fit did not see. What
wasn't measured at all (a GPU or network by datasheet and judgement) makes it wider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.model.machine import stack_named
from wirecost.spec import GPU, Link, Stack, gpu
from wirecost.spec.presets import named

if TYPE_CHECKING:
    from wirecost.model.rows import Configuration

LEVEL = 0.9
WIDER = 1.5
"""Half width's factor for each thing that lies outside what was fitted: whole models and degrees that a fit did
not see err 1.2 to 1.7 times as far as single rows that it did not see (docs/model.md)."""
WIDEST = 1.5  # a factor of 4.5 either way: an interval beyond says nothing


def is_measured(part: GPU | Link | Stack) -> bool:
    """Whether the part's figures were fitted to measurements, rather than taken from a datasheet or judged."""
    return part.calibration is not None and "judgement" not in part.calibration


def widened(stack: Stack, device: GPU, network: Link | None) -> float:
    """The stack's spread for that GPU and (where several nodes take part) that network."""
    spread = stack.spread
    for part in (device, network):
        if part is not None and not is_measured(part):
            spread *= WIDER
    return min(spread, WIDEST)


def spread_of(row: Configuration) -> float:
    """Half the width, in natural logarithms, of the interval that holds nine in ten measurements like this row."""
    several = float(row.layout.world) > row.key.gpus_per_node
    network = Link.model_validate(named("link", row.key.inter)) if several else None
    return widened(stack_named(row.key.stack), gpu(row.key.gpu), network)
