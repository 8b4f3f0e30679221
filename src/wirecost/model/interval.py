"""How far a measurement may lie from its prediction.

A stack's `spread` is the 90 % quantile of |log(predicted / measured)| over rows that its fit did not see. What
wasn't measured at all (a GPU or network by datasheet and judgement) errs on its own account, so that it adds in
quadrature; how much, whole sources left out of the fit tell (benchmarks/held_out_sources.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wirecost.model.machine import stack_named
from wirecost.spec import GPU, Link, Stack, gpu
from wirecost.spec.presets import named

if TYPE_CHECKING:
    from wirecost.model.rows import Configuration

LEVEL = 0.9
FACTOR = 2.0
"""Beyond twice the largest (or below half the smallest) calibrated value a prediction counts as extrapolated."""
WIDER = 1.5
"""The half width's factor for each dimension outside what was fitted: whole models and degrees that a fit did not
see err 1.2 to 1.7 times as far as single rows that it did not see (docs/explanation/cost-model.md)."""
UNKNOWN_GPU, UNKNOWN_NETWORK = 0.28, 0.17
"""Half widths of what a GPU's usual efficiency and a network's miss by, where no measurement was fitted."""
WIDEST = 1.5  # a factor of 4.5 either way: an interval beyond says nothing


def is_measured(part: GPU | Link | Stack) -> bool:
    """Whether the part's figures were fitted to measurements, rather than taken from a datasheet or judged."""
    return part.calibration is not None and "judgement" not in part.calibration


def widened(stack: Stack, device: GPU, network: Link | None, beyond: Sequence[str] = ()) -> float:
    """The stack's spread for that GPU and (where several nodes take part) that network, with dimensions `beyond`
    its calibrated range."""
    spread = stack.spread * WIDER ** len(beyond)
    unknown = 0.0 if is_measured(device) else UNKNOWN_GPU
    other = 0.0 if network is None or is_measured(network) else UNKNOWN_NETWORK
    return min(math.hypot(spread, unknown, other), WIDEST)


def outside(stack: Stack, values: Mapping[str, float]) -> list[str]:
    """The dimensions that lie beyond twice the largest, or below half the smallest, that the stack was calibrated
    on."""
    found = []
    for key, (low, high) in stack.calibrated_range.items():
        value = values.get(key)
        if value is not None and not low / FACTOR <= value <= high * FACTOR:
            found.append(key)
    return found


def spread_of(row: Configuration) -> float:
    """Half the width, in natural logarithms, of the interval that holds nine in ten measurements like this row."""
    several = float(row.layout.world) > row.key.gpus_per_node
    network = Link.model_validate(named("link", row.key.inter)) if several else None
    stack = stack_named(row.key.stack)
    values = {
        "gpus": float(row.layout.world),
        "hidden": float(row.shape.hidden),
        "layers": float(row.shape.layers),
        "sequence_length": float(row.shape.sequence),
        "micro_batch": float(row.layout.micro_batch),
        "tensor_parallel": float(row.layout.tensor),
        "pipeline_parallel": float(row.layout.pipeline),
    }
    return widened(stack, gpu(row.key.gpu), network, outside(stack, values))
