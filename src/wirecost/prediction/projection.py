"""The at-scale study's projection (doi 10.1145/3639034).

One node's breakdown and the network's efficiency give the iteration at scale.

speedup(g -> n) = (r_compute + r_comm) / (r_compute + r_comm / efficiency(g -> n)), with r the shares of the
iteration on g GPUs. The efficiency is how much of the node's collective bandwidth is left on n GPUs, measured by
benchmark or taken from the model's links.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wirecost.breakdown import Breakdown
from wirecost.costmodel.collectives import all_reduce_s, group
from wirecost.costmodel.inputs import Machine
from wirecost.errors import SpecError


@dataclass(frozen=True)
class Projection:
    """`speedup` relative to perfect scaling of throughput from `gpus` to `target` GPUs. `low_s` and `high_s` are
    the 90 % interval of the iteration that the uncertainty of the efficiency causes, `comm_fraction_low` and
    `comm_fraction_high` that of the fraction."""

    gpus: int
    target: int
    efficiency: float
    speedup: float
    iteration_s: float
    comm_fraction: float
    low_s: float
    high_s: float
    comm_fraction_low: float
    comm_fraction_high: float


MEASURED_SPREAD, MODELLED_SPREAD = 0.1, 0.25
"""Half widths, in logarithms, of an efficiency from benchmarks (repeated runs differ by this much) and from a
cluster's links (the ratio of two bandwidths, each of which is off by 0.17 where it was not measured)."""


def project(measured: Breakdown, target: int, efficiency: float, spread: float = MEASURED_SPREAD) -> Projection:
    """Projects a one-node breakdown (an engine run or an imported trace) to `target` GPUs, weak scaling.

    `efficiency` is busbw on `target` GPUs over busbw on the breakdown's, and `spread` half its 90 % interval in
    logarithms.

    Raises:
        SpecError: for a breakdown without iterations or with several nodes' worth of unknown time, or an
            efficiency that isn't positive.
    """
    if not 0 < efficiency <= 10:
        raise SpecError(
            f"efficiency: {efficiency} can't be; the bus bandwidth at scale over that on one node, above 0"
        )
    time = measured.iteration_ns()
    comm, overlapped = measured.part_share("exposed_comm_ns"), measured.part_share("overlapped_ns")
    if time is None or comm is None or overlapped is None or not time.median:
        raise SpecError("the breakdown has no iterations to project from")
    if target < measured.world_size:
        raise SpecError(f"target: {target} GPUs are fewer than the breakdown's {measured.world_size}")
    exposed, hidden = comm.median, overlapped.median
    compute = 1 - exposed  # compute that hides communication counts as compute time

    def shown(share: float) -> float:
        """Returns the exposed communication over the iteration measured, with an efficiency of `share`."""
        # Hidden communication grows with the network too, and comes out where compute no longer covers it.
        grown = (exposed + hidden) / share
        return max(exposed / share, grown - min(hidden, compute))

    best, low, high = (
        shown(efficiency),
        shown(efficiency * math.exp(spread)),
        shown(efficiency * math.exp(-spread)),
    )
    seconds = time.median * 1e-9
    return Projection(
        gpus=measured.world_size,
        target=target,
        efficiency=efficiency,
        speedup=1.0 / (compute + best),
        iteration_s=seconds * (compute + best),
        comm_fraction=best / (compute + best),
        low_s=seconds * (compute + low),
        high_s=seconds * (compute + high),
        comm_fraction_low=low / (compute + low),
        comm_fraction_high=high / (compute + high),
    )


def network_efficiency(machine: Machine, gpus: int, target: int, size_bytes: float = 64e6) -> float:
    """Returns the bus bandwidth of an all-reduce of `size_bytes` on `target` GPUs over that on `gpus`, from the
    machine's links."""

    def busbw(n: int) -> float:
        seconds = float(all_reduce_s(size_bytes, group(float(n), 1.0, float(n), machine), machine))
        return 2 * (n - 1) / n * size_bytes / seconds

    if gpus < 2:
        raise SpecError(
            "one GPU has no collective to take an efficiency from; start from a breakdown of 2 or more"
        )
    return busbw(target) / busbw(gpus)
