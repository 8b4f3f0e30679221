"""Workloads that a calibration has runs of: what the formulas miss of them is taken from the runs.

The formulas describe every transformer by a few properties, and a fit of those to several workloads leaves each a
few percent off, most where the host limits the pace. For the very workload of a run, what was left over is known:
the ratio of its measured to its modelled time, interpolated over the micro-batch (linear in the logarithms).

A run that waited for the host tells the host's time instead: the same for every micro-batch, so that of several
such runs the geometric mean counts. The device's is then the formulas' with the ratio of the workload's other
runs, and an iteration takes at least what the host does: while the network is waited for, the host runs ahead,
so that the two times are not added.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
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
OF_LAYERS = ("host_forward_s", "host_backward_s", "host_vocabulary_s")
FACTOR = 2.0
"""How far beyond the micro-batches of the runs the last ratio still counts."""


@dataclass(frozen=True)
class Left:
    """What the formulas leave over: measured / modelled time of forward and backward, and of the optimizer; and
    what the host takes, where runs that waited for it told."""

    compute: float
    optimizer: float
    host_s: float | None = None
    host_once_s: float = 0.0


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

    def at(known: Iterable[tuple[int, float | None]]) -> float | None:
        told = [(size, value) for size, value in known if value]
        if not told:
            return None
        places, values = np.log(np.array(told)).T
        return math.exp(float(np.interp(math.log(micro_batch), places, values)))

    def paces(values: Iterable[float | None]) -> float | None:
        """Of hosts: launching takes as long whatever the micro-batch, and differs from run to run."""
        told = [value for value in values if value]
        return statistics.geometric_mean(told) if told else None

    return Left(
        at((one.micro_batch, one.compute) for one in mine) or 1.0,
        at((one.micro_batch, one.optimizer) for one in mine) or 1.0,
        paces(one.host_s for one in mine),
        paces(one.host_once_s for one in mine) or 0.0,
    )


def as_seen(machine: Machine, stack: Stack, workload: Workload, micro_batch: int) -> Machine:
    """The machine, as fast as the stack's runs of this workload had it."""
    left = left_over(stack.seen, workload, micro_batch)
    if left is None:
        return machine
    # `slowed` slows everything, the optimizer and the host too.
    changes = {"optimizer_bytes": stack.optimizer_bytes * left.optimizer / left.compute}
    if left.host_s is not None:
        changes |= dict.fromkeys(OF_LAYERS, 0.0)
        changes |= {
            "host_issue_s": left.host_s / left.compute,
            "host_issue_once_s": left.host_once_s / left.compute,
        }
    changes["host_shard_s"] = stack.host_shard_s / left.compute
    return slowed(replace(machine, stack=stack.model_copy(update=changes)), left.compute)


def spread_of(stack: Stack, workload: Workload, micro_batch: int) -> float:
    """The stack's `spread` for this workload: smaller where a run of it is behind the prediction."""
    left = left_over(stack.seen, workload, micro_batch)
    # A host's pace differs from run to run as no device's does.
    if left is None or left.host_s is not None:
        return stack.spread
    return min(stack.spread, UNTOLD_SPREAD if stack.seen_spread is None else stack.seen_spread)
