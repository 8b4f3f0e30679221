"""Ranks that share processor cores: how much longer each one's compute takes.

The device's figures are one rank's on `threads` threads. With more ranks on the same cores each has fewer
threads: compute takes serial + (1 - serial) / threads of one thread's time (Amdahl 1967, doi
10.1145/1465482.1465560), and ranks beyond the number of cores take turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.inputs import Layout
from wirecost.costmodel.numbers import Number
from wirecost.spec import SharedCores


@dataclass(slots=True)
class Sharing:
    """How much longer compute takes than on the calibrated threads, and the part of it that is taking turns."""

    slowdown: Number
    turns: Number


def sharing(layout: Layout, cores: SharedCores, gpus_per_node: float) -> Sharing:
    """Returns what sharing `cores` costs each rank of a layout."""
    ranks = layout.world if cores.shared_by == "all" else np.minimum(layout.world, gpus_per_node)
    threads = np.maximum(1.0, np.floor(cores.count / ranks))
    turns = np.maximum(1.0, ranks / cores.count)
    alone = cores.serial + (1 - cores.serial) / cores.threads
    return Sharing((cores.serial + (1 - cores.serial) / threads) / alone * turns, turns)


def bubble_s(busy_s: Number, waiting_s: Number, turns: Number) -> Number:
    """Returns a pipeline's bubble where stages take turns on cores. Waiting stages leave theirs to the others, so
    that an iteration ends neither before all the work is done nor before the schedule allows."""
    return np.maximum((busy_s + waiting_s) / turns, busy_s) - busy_s
