"""Workloads that a calibration has runs of: what the formulas miss of them is taken from the runs.

The formulas describe every transformer by a few properties, and a fit of those to several workloads leaves each a
few percent off, most where the host limits the pace. For the very workload of a run, what was left over is known:
the ratio of its measured to its modelled time, interpolated over the micro-batch (linear in the logarithms).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wirecost.model.cores import slowed
from wirecost.model.inputs import Machine
from wirecost.spec import Stack, Workload
from wirecost.spec.stack import Seen

RESOLVED = ("family", "layers", "hidden", "heads", "ffn", "sequence_length", "vocab_size")
"""What a workload's key always has; of everything else that the formulas look at what isn't usual."""
UNTOLD_SPREAD = 0.1
"""Half the interval's width where single runs don't tell how well they predict each other: repeated runs on quiet
machines lie within 5 % of each other, as a standard deviation."""
_NO_DIMENSIONS = {"name", "source"}
FACTOR = 2.0
"""How far beyond the micro-batches of the runs the last ratio still counts."""


@dataclass(frozen=True)
class Left:
    """What the formulas leave over: measured / modelled time of forward and backward, and of the optimizer."""

    compute: float
    optimizer: float


def key_of(workload: Workload) -> dict[str, int | str]:
    """Two workloads with one key are the same to the formulas."""
    values = {key: getattr(workload, key) for key in RESOLVED}
    values |= workload.model_dump(mode="json", exclude=_NO_DIMENSIONS | {"ffn_hidden"}, exclude_defaults=True)
    if workload.key_value_heads == workload.heads:
        values.pop("kv_heads", None)
    return {key: value if isinstance(value, int) else str(value) for key, value in values.items()}


def left_over(seen: Sequence[Seen], workload: Workload, micro_batch: int) -> Left | None:
    """For a workload and micro-batch; None for a workload without a run, or a micro-batch far from all of its."""
    key = key_of(workload)
    mine = sorted((one for one in seen if one.key == key), key=lambda one: one.micro_batch)
    if not mine or not mine[0].micro_batch / FACTOR <= micro_batch <= mine[-1].micro_batch * FACTOR:
        return None
    at, places = math.log(micro_batch), np.log([one.micro_batch for one in mine])

    def ratio(values: list[float]) -> float:
        return math.exp(float(np.interp(at, places, np.log(values))))

    return Left(ratio([one.compute for one in mine]), ratio([one.optimizer for one in mine]))


def as_seen(machine: Machine, stack: Stack, workload: Workload, micro_batch: int) -> Machine:
    """The machine, as fast as the stack's runs of this workload had it."""
    left = left_over(stack.seen, workload, micro_batch)
    if left is None:
        return machine
    # `slowed` slows everything, the optimizer too.
    moved = stack.optimizer_bytes * left.optimizer / left.compute
    return slowed(replace(machine, stack=stack.model_copy(update={"optimizer_bytes": moved})), left.compute)


def spread_of(stack: Stack, workload: Workload, micro_batch: int) -> float:
    """The stack's `spread` for this workload: smaller where a run of it is behind the prediction."""
    if left_over(stack.seen, workload, micro_batch) is None:
        return stack.spread
    return min(stack.spread, UNTOLD_SPREAD if stack.seen_spread is None else stack.seen_spread)
