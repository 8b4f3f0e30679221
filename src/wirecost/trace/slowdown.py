"""Finds compute that is slower while communication runs, by comparing kernels of one name and grid with and
without it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from wirecost.breakdown.intervals import Intervals, measure_before
from wirecost.trace.categories import KERNEL
from wirecost.trace.recorded import NONE, Columns

if TYPE_CHECKING:
    from wirecost.trace.calls import Calls

# A kernel counts as overlapped if communication covers this share of it, as not overlapped if it covers nothing.
_BESIDE_SHARE = 0.9
_FEWEST_WITHOUT = 3  # kernels of one name and grid that a comparison takes
_FEWEST_BESIDE = 10  # the fewest overlapped kernels for a figure


class Slowdown(msgspec.Struct, frozen=True):
    """The extra time of a rank's compute kernels during one kind of communication.

    `ratio` is the time of `kernels` kernels during communication over the median time of kernels of the same name
    and grid without it. `extra_ns` is the difference over the whole recording.
    """

    op: str
    group: str
    kernels: int
    ratio: float
    extra_ns: int


def slowdowns(columns: Columns, comm: Intervals, calls: Calls) -> list[Slowdown]:
    """Returns the slowdowns by operation and process group, the largest first; none if grids aren't recorded."""
    rows = np.flatnonzero((columns.kind == KERNEL) & ~columns.comm & (columns.shape != NONE))
    if len(rows) == 0 or len(calls) == 0:
        return []
    start, end = columns.start_ns[rows], columns.end_ns[rows]
    length = end - start
    covered = measure_before(comm, end) - measure_before(comm, start)
    overlapped = (covered >= _BESIDE_SHARE * length) & (length > 0)
    without = (covered == 0) & (length > 0)
    # Shapes are 64-bit hashes, so they stay distinct when mixed with names.
    _, key = np.unique(columns.shape[rows] * (2 * columns.name[rows] + 1), return_inverse=True)
    usual = np.full(int(key.max()) + 1, np.nan)
    order = np.flatnonzero(without)[np.argsort(key[without], kind="stable")]
    for part in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if len(part) >= _FEWEST_WITHOUT:
            usual[key[part[0]]] = np.median(length[part])
    compared = np.flatnonzero(overlapped & ~np.isnan(usual[key]))
    at = np.maximum(np.searchsorted(calls.start_ns, start[compared], side="right") - 1, 0)
    grouped: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, call in zip(compared, at, strict=True):
        grouped[int(calls.op[call]), int(calls.group[call])].append(int(row))
    results = []
    for (op, group), members in grouped.items():
        took, expected = float(length[members].sum()), float(usual[key[members]].sum())
        if len(members) >= _FEWEST_BESIDE and expected:
            ratio = took / expected
            results.append(
                Slowdown(calls.ops[op], calls.groups[group], len(members), ratio, round(took - expected))
            )
    return sorted(results, key=lambda s: -s.extra_ns)
