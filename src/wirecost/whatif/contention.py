"""Kernels beside collectives: how much longer they take, and how long they take when collectives run elsewhere.

A collective's kernel holds thread blocks and memory bandwidth also while it waits for a late rank. Kernels of
one name and grid show by how much others run longer beside it (1.10 to 1.17 over NVLink, not at all beside
sockets with their two thread blocks). The recorded length is that of a kernel alone times this ratio where it
was covered; what covers it after a change follows from the replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wirecost.breakdown.intervals import measure_before, merge
from wirecost.trace.categories import KERNEL
from wirecost.whatif.nodes import JOIN, WORK, Graph, RankGraph, Step
from wirecost.whatif.simulate import RankTimes

_LEAST = 1.02
_MOST = 1.5


def ratio_of(rank: RankGraph) -> float:
    """Returns how many times as long kernels of a rank took beside collectives; 1 where that can't be told."""
    told = [s for s in rank.record.trace.slowdowns if s.kernels]
    count = sum(s.kernels for s in told)
    if not count:
        return 1.0
    ratio = sum(s.ratio * s.kernels for s in told) / count
    return min(ratio, _MOST) if ratio >= _LEAST else 1.0


def alone(graph: Graph) -> list[list[Step]]:
    """Returns each rank's steps with the lengths that its kernels have alone; the steps themselves where nothing
    was slowed."""
    found = []
    for rank in graph.ranks:
        ratio = ratio_of(rank)
        if ratio == 1.0:
            found.append(rank.steps)
            continue
        device = rank.record.recorded.device
        comm = np.flatnonzero(device.comm)
        merged = merge(np.stack([device.start_ns[comm], device.end_ns[comm]], axis=1))
        covered = measure_before(merged, device.end_ns) - measure_before(merged, device.start_ns)
        share = np.where(
            device.comm | (device.kind != KERNEL), 0.0, covered / np.maximum(device.end_ns - device.start_ns, 1)
        )
        factor = 1 / (1 + (ratio - 1) * share)
        steps = []
        for step in rank.steps:
            rows = np.array(step.row, dtype=np.int64)
            scale = np.where((rows >= 0) & (np.array(step.kind) == WORK), factor[np.maximum(rows, 0)], 1.0)
            steps.append(replace(step, length=(np.array(step.length) * scale).tolist()))
        found.append(steps)
    return found


def beside(
    steps: Sequence[Step], result: RankTimes, order: Sequence[int], ratio: float, kernels: np.ndarray
) -> list[Step]:
    """Returns steps of lone kernels, lengthened where the replay's collectives covered them.

    Args:
        result: a replay that kept its last cycles.
        order: the number of the step of each cycle.
        kernels: whether each row of the device is a kernel that computes.
    """
    spans = []
    for cycle, (begin, end) in result.kept.items():
        kind = steps[order[cycle]].kind
        spans += [(begin[i], end[i]) for i, k in enumerate(kind) if k == JOIN]
    if not spans:
        return list(steps)
    merged = merge(np.rint(np.array(spans)).astype(np.int64))
    found = list(steps)
    for cycle, (begin, end) in result.kept.items():
        step = steps[order[cycle]]
        starts, ends = np.rint(begin).astype(np.int64), np.rint(end).astype(np.int64)
        covered = measure_before(merged, ends) - measure_before(merged, starts)
        rows = np.array(step.row, dtype=np.int64)
        counts = (rows >= 0) & (np.array(step.kind) == WORK) & kernels[np.maximum(rows, 0)]
        share = np.where(counts, covered / np.maximum(ends - starts, 1), 0.0)
        found[order[cycle]] = replace(step, length=(np.array(step.length) * (1 + (ratio - 1) * share)).tolist())
    return found
