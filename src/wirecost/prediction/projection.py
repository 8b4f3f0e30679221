"""The at-scale study's projection (doi 10.1145/3639034).

One node's breakdown and the network's efficiency give the iteration at scale.

speedup(g -> n) = (r_compute + r_comm) / (r_compute + r_comm / efficiency(g -> n)), with r the shares of the
iteration on g GPUs. The efficiency is how much of the node's collective
bandwidth is left on n GPUs, measured by benchmark or taken from the model's links.
"""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.breakdown import Breakdown
from wirecost.costmodel.collectives import all_reduce_s, group
from wirecost.costmodel.inputs import Machine
from wirecost.errors import SpecError


@dataclass(frozen=True)
class Projection:
    """`speedup` relative to perfect scaling of throughput from `gpus` to `target` GPUs."""

    gpus: int
    target: int
    efficiency: float
    speedup: float
    iteration_s: float
    comm_fraction: float


def project(measured: Breakdown, target: int, efficiency: float) -> Projection:
    """Projects a one-node breakdown (an engine run or an imported trace) to `target` GPUs, weak scaling.

    `efficiency` is busbw on `target` GPUs over busbw on the breakdown's.

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
    compute = 1 - exposed  # what hides communication is compute time all the same
    # Hidden communication grows with the network too, and comes out where compute no longer covers it.
    grown = (exposed + hidden) / efficiency
    shown = max(exposed / efficiency, grown - min(hidden, compute))
    speedup = 1.0 / (compute + shown)
    seconds = time.median * 1e-9 / speedup
    return Projection(measured.world_size, target, efficiency, speedup, seconds, shown / (compute + shown))


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
