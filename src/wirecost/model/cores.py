"""Ranks that share processor cores: how much longer each one's compute takes.

The device's figures are one rank's on `threads` threads. With more ranks on the same cores each has fewer
threads: compute takes serial + (1 - serial) / threads of one thread's time (Amdahl 1967, doi
10.1145/1465482.1465560), and ranks beyond the cores take turns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from wirecost.model.inputs import Layout, Machine, Number


def slowdown(layout: Layout, machine: Machine) -> tuple[Number, Number]:
    """How much longer compute takes than on the calibrated threads, and the part of it that is taking turns."""
    cores = machine.cores
    ranks = layout.world if cores.shared_by == "all" else np.minimum(layout.world, machine.gpus_per_node)
    threads = np.maximum(1.0, np.floor(cores.count / ranks))
    turns = np.maximum(1.0, ranks / cores.count)
    alone = cores.serial + (1 - cores.serial) / cores.threads
    return (cores.serial + (1 - cores.serial) / threads) / alone * turns, turns


def slowed(machine: Machine, factor: Number) -> Machine:
    """The machine whose compute, but not whose network, takes `factor` times as long."""
    return replace(
        machine,
        peak_flops=machine.peak_flops / factor,
        attention_peak_flops=machine.attention_peak_flops / factor,
        memory_Bps=machine.memory_Bps / factor,
        stack=_SlowerHost(machine.stack, factor),
    )


class _SlowerHost:
    """A stack whose host-side times take a factor longer; everything else is the stack's own."""

    def __init__(self, stack: Any, factor: Number) -> None:
        self._stack = stack
        self._factor = factor

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stack, name)
        if name.startswith("host_") and name.endswith("_s"):
            return value * self._factor
        return value * self._factor if name == "iteration_s" else value


def bubble_s(busy_s: Number, waiting_s: Number, turns: Number) -> Number:
    """A pipeline's bubble where stages take turns on cores: waiting stages leave theirs to the others, so that an
    iteration ends neither before all the work is done nor before the schedule allows."""
    return np.maximum((busy_s + waiting_s) / turns, busy_s) - busy_s
