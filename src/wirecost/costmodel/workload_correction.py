"""Workloads that a calibration has runs of: the residual of the formulas is taken from the runs.

The formulas describe every transformer by a few properties, and a fit of those to several workloads leaves each a
few percent off, most where the host limits the pace. For the workload of a run the residual is known: the ratio of
its measured to its modelled time, interpolated over the micro-batch (linear in the logarithms).

A run that waited for the host determines the host's time instead. It is the same for every micro-batch, so that
the geometric mean of several such runs counts. The device's time is then the formulas' with the ratio of the
workload's other runs, and an iteration takes at least what the host takes: while the network is waited for, the
host runs ahead, so that the two times are not added."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wirecost.costmodel.inputs import Machine, scaled
from wirecost.spec import Stack, Workload
from wirecost.spec.stack_costs import WorkloadCorrection

RESOLVED = ("family", "layers", "hidden", "heads", "ffn", "sequence_length", "vocab_size")
"""Dimensions that a workload's key always has; of the others that the formulas read it has those that are
unusual."""
_NO_DIMENSIONS = {"name", "source"}
FACTOR = 2.0
"""How far beyond the micro-batches of the runs the last ratio still counts."""


@dataclass(frozen=True)
class Residual:
    """Measured over modelled time of forward and backward, and of the optimizer; and the host's time, where runs
    that waited for it determined it."""

    compute: float
    optimizer: float
    host_s: float | None = None
    host_once_s: float = 0.0


def key_of(workload: Workload) -> dict[str, int | str]:
    """Returns the dimensions that the formulas read. Two workloads with one key are the same to the formulas."""
    values = {key: getattr(workload, key) for key in RESOLVED}
    values |= workload.model_dump(mode="json", exclude=_NO_DIMENSIONS | {"ffn_hidden"}, exclude_defaults=True)
    if workload.key_value_heads == workload.heads:
        values.pop("kv_heads", None)
    return {key: value if isinstance(value, int) else str(value) for key, value in values.items()}


def residual_of(
    corrections: Sequence[WorkloadCorrection], workload: Workload, micro_batch: int
) -> Residual | None:
    """Returns the residual of a workload and micro-batch; None for a workload without a run, or a micro-batch far
    from those of its runs."""
    key = key_of(workload)
    own = sorted((c for c in corrections if c.key == key), key=lambda c: c.micro_batch)
    if not own or not own[0].micro_batch / FACTOR <= micro_batch <= own[-1].micro_batch * FACTOR:
        return None

    def interpolated(known: Iterable[tuple[int, float | None]]) -> float | None:
        points = [(size, value) for size, value in known if value]
        if not points:
            return None
        places, values = np.log(np.array(points)).T
        return math.exp(float(np.interp(math.log(micro_batch), places, values)))

    def mean_pace(values: Iterable[float | None]) -> float | None:
        """Launching takes as long whatever the micro-batch, and differs from run to run."""
        paces = [value for value in values if value]
        return paces[0] if len(paces) == 1 else statistics.geometric_mean(paces) if paces else None

    return Residual(
        interpolated((c.micro_batch, c.compute) for c in own) or 1.0,
        interpolated((c.micro_batch, c.optimizer) for c in own) or 1.0,
        mean_pace(c.host_s for c in own),
        mean_pace(c.host_once_s for c in own) or 0.0,
    )


def corrected(machine: Machine, stack: Stack, workload: Workload, micro_batch: int) -> Machine:
    """Returns the machine, as fast as the stack's runs of this workload had it."""
    residual = residual_of(stack.accuracy.workload_corrections, workload, micro_batch)
    if residual is None:
        return machine
    # `slowed` slows everything, the optimizer and the host too.
    optimizer_bytes = stack.iteration.optimizer_bytes * residual.optimizer / residual.compute
    # The residual is the device's, and launching communication takes as long whatever the workload.
    host = replace(
        machine.host,
        collective_s=machine.host.collective_s / residual.compute,
        shard_s=machine.host.shard_s / residual.compute,
        sequence_collective_s=scaled(machine.host.sequence_collective_s, 1 / residual.compute),
        transfer_s=scaled(machine.host.transfer_s, 1 / residual.compute),
    )
    if residual.host_s is not None:
        host = replace(
            host,
            forward_s=0.0,
            backward_s=0.0,
            vocabulary_s=0.0,
            issue_s=residual.host_s / residual.compute,
            issue_once_s=residual.host_once_s / residual.compute,
        )
    changed = replace(machine, stack=stack.with_values({"optimizer_bytes": optimizer_bytes}), host=host)
    return changed.slowed(residual.compute)
