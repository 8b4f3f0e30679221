"""A rank's time line, thinned to what a page can draw."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from wirecost.breakdown.intervals import Intervals, intersect, merge, subtract, union


class Timeline(msgspec.Struct):
    """Disjoint stretches for drawing, each an (n, 2) int64 array of absolute ns. `gap_ns`: gaps shorter than this
    were closed to thin the picture (0: nothing was); the numbers beside it never come from here."""

    compute: npt.NDArray[np.int64]
    overlapped: npt.NDArray[np.int64]
    exposed: npt.NDArray[np.int64]
    memory: npt.NDArray[np.int64]
    gap_ns: int

    @classmethod
    def of(
        cls,
        start_ns: int,
        end_ns: int,
        compute: Intervals,
        comm: Intervals,
        memory: Intervals,
        *,
        base_ns: int,
        limit: int,
    ) -> Timeline:
        parts = {
            "compute": subtract(compute, comm),
            "overlapped": intersect(compute, comm),
            "exposed": subtract(comm, compute),
            "memory": subtract(memory, union(compute, comm)),
        }
        gap = 0
        while sum(map(len, parts.values())) > limit:
            gap = max(2 * gap, (end_ns - start_ns) // limit, 1)
            parts = {name: _closed(p, gap) for name, p in parts.items()}
        return cls(**{name: p + base_ns for name, p in parts.items()}, gap_ns=gap)


def _closed(intervals: Intervals, gap_ns: int) -> Intervals:
    wider = intervals.copy()
    wider[:, 1] += gap_ns
    wider = merge(wider)
    wider[:, 1] -= gap_ns
    return wider
