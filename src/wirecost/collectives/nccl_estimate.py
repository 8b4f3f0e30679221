"""Computes the bus bandwidth that NCCL's own model expects for large messages, by algorithm.

The figures are those of NCCL 2.30: src/graph/topo.h (the bandwidth that it counts an NVLink for),
src/graph/search.cc (the bandwidths of a channel that it tries, and which of them it keeps), src/graph/tuning.cc
(the efficiency of NVLS and trees). The model uses the nominal rate of a NIC, without protocol overhead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# The bandwidths of a channel, in GB/s, that NCCL tries inside a node and between nodes.
_INSIDE = (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
_BETWEEN = (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
_INSIDE_HOPPER = (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)
_BETWEEN_HOPPER = (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_INSIDE_BLACKWELL = (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)
_BETWEEN_BLACKWELL = (
    96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12,
)  # fmt: skip


@dataclass(frozen=True)
class _Generation:
    counted: float  # GB/s that NCCL assumes for an NVLink
    nominal: float  # GB/s of an NVLink in one direction
    inside: Sequence[float]
    between: Sequence[float]
    nvls: float  # efficiency of reduction in NVSwitches; 0 where there is none
    tree_channel: float  # most GB/s of a tree's channel on two nodes
    nvls_tree_channel: tuple[float, float]  # of NVLSTree's: on two nodes, on more


_GENERATIONS = {
    "volta": _Generation(20.0, 25, _INSIDE, _BETWEEN, 0.0, 18.5, (0.0, 0.0)),
    "ampere": _Generation(20.0, 25, _INSIDE, _BETWEEN, 0.0, 23.6, (0.0, 0.0)),
    "hopper": _Generation(20.6, 25, _INSIDE_HOPPER, _BETWEEN_HOPPER, 0.85, 41.4, (57.7, 45.5)),
    "blackwell": _Generation(40.1, 50, _INSIDE_BLACKWELL, _BETWEEN_BLACKWELL, 0.74, 42.8, (96.0, 80.0)),
}
_LEAST_SHARE = 0.49
"""Slower channels are tried down to this share of the best so far."""
_TREE = 0.92


@dataclass(frozen=True)
class Estimate:
    """The algorithm that NCCL's model selects for large messages, and its expected bus bandwidth."""

    algorithm: str
    busbw_Bps: float


def estimate(
    collective: str,
    *,
    architecture: str,
    nvlink_Bps: float,
    ranks: int,
    nodes: int,
    nics: int,
    nic_Bps: float | None,
    switched: bool,
) -> Estimate | None:
    """Returns NCCL's expectation; None without NVLink and for architectures and collectives that aren't covered.

    Args:
        nvlink_Bps: what a GPU's NVLinks nominally give in one direction.
        nics: NICs that a node's GPUs use, each of `nic_Bps`.
        switched: whether all GPUs of a node reach each other through NVSwitches.
    """
    generation = _GENERATIONS.get(architecture)
    if generation is None or nvlink_Bps <= 0 or collective not in ("all_reduce", "all_gather", "reduce_scatter"):
        return None
    inside = nvlink_Bps / (generation.nominal * 1e9) * generation.counted
    per_node = ranks / nodes
    busbw_GBps: dict[str, float] = {}
    if nodes == 1:
        if (best := _channels(generation.inside, inside, lambda s: inside // s)) is None:
            return None
        busbw_GBps["ring"] = best[0] * best[1]
        if switched and generation.nvls and ranks > 2:
            speed = next((s for s in generation.inside if s * ranks <= inside), 0.0)
            channel = speed * generation.nvls * (ranks - 1) / ranks
            busbw_GBps["NVLS"] = ranks * channel * (2 if collective == "all_reduce" else (ranks - 1) / ranks)
    else:
        if nic_Bps is None:
            return None
        nic = nic_Bps * 1e-9
        bound = inside if per_node > 1 else math.inf
        best = _channels(generation.between, nic, lambda s: min(nics * (nic // s), bound // s))
        if best is None:
            return None
        count, speed = best
        busbw_GBps["ring"] = count * speed
        if collective == "all_reduce":
            factor = 2 * (ranks - 1) / ranks
            if nodes == 2:
                at = list(generation.between).index(speed)
                faster = generation.between[max(at - 1, 0)] if per_node > 1 else speed
                busbw_GBps["tree"] = min(count * faster * _TREE, count * generation.tree_channel) / 2 * factor
            if switched and generation.nvls and per_node > 2:
                two = nodes == 2
                channel = speed * generation.nvls * (count - 1) / count * 2
                most = generation.nvls_tree_channel[0 if two else 1]
                busbw_GBps["NVLSTree"] = count * min(channel, speed * (2 if two else 1), most)
    algorithm = max(busbw_GBps, key=lambda name: busbw_GBps[name])
    return Estimate(algorithm, busbw_GBps[algorithm] * 1e9)


def _channels(speeds: Sequence[float], most: float, count: Callable[[float], float]) -> tuple[float, float] | None:
    """Returns the (number of channels, GB/s of each) with the highest total, among the speeds that NCCL tries."""
    best: tuple[float, float] | None = None
    for speed in speeds:
        if speed > most or (best is not None and speed < _LEAST_SHARE * best[1]):
            continue
        channels = count(speed)
        if channels >= 1 and (best is None or channels * speed > best[0] * best[1] + 1e-9):
            best = (channels, speed)
    return best
