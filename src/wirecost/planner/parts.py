"""The parts of the iterations of many plans, as an array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wirecost.planner.search import Found, Machines, machines_of

PARTS = {
    "compute_s": "compute",
    "host_s": "waiting for launches",
    "bubble_s": "pipeline bubble",
    "tensor_s": "tensor parallel",
    "context_expert_s": "context, expert parallel",
    "pipeline_s": "pipeline transfers",
    "gradient_s": "gradients (exposed)",
    "parameter_s": "parameters (exposed)",
    "embedding_sync_s": "tied embedding",
    "optimizer_s": "optimizer",
    "straggler_s": "slowest node",
    "other_s": "other",
}
"""Parts of `wirecost.costmodel.iteration.Iteration` that sum to the iteration, and their names for people."""


def parts_of(
    found: Found, places: Sequence[int] | npt.NDArray[np.int64], machines: Machines | None = None
) -> npt.NDArray[np.float64]:
    """Returns the seconds of the parts of plans, of shape (places, PARTS)."""
    places = np.asarray(places, dtype=np.int64)
    seconds = np.zeros((len(places), len(PARTS)))
    position = np.full(len(found), -1)
    position[places] = np.arange(len(places))
    for own, times in found.iterations(places, machines or machines_of(found.space.question)):
        for column, name in enumerate(PARTS):
            seconds[position[own], column] = np.asarray(getattr(times, name))
    return seconds


def totals_of(found: Found, places: npt.NDArray[np.int64], machines: Machines) -> npt.NDArray[np.float64]:
    """Returns the iteration times in seconds of plans on other machines, of shape (places,)."""
    total = np.zeros(len(places))
    position = np.full(len(found), -1)
    position[places] = np.arange(len(places))
    for own, times in found.iterations(places, machines):
        total[position[own]] = np.asarray(times.total_s)
    return total
