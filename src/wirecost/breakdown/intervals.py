"""Exact, vectorised interval arithmetic on time lines in integer nanoseconds.

An interval set is an int64 array of shape (n, 2) holding half-open [start, end) pairs in nanoseconds. A *merged*
set is sorted, disjoint and free of empty intervals; `merge` creates one; the other functions take and return
merged sets.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.int64]

EMPTY: Intervals = np.empty((0, 2), dtype=np.int64)


def from_pairs(pairs: Iterable[tuple[int, int]]) -> Intervals:
    """Returns a merged set from (start_ns, end_ns) pairs in any order. Pairs that end at or before their start are
    dropped.
    """
    return merge(np.array(list(pairs), dtype=np.int64).reshape(-1, 2))


def merge(intervals: Intervals) -> Intervals:
    """Returns the union of any intervals as a merged set. Touching intervals become one."""
    intervals = intervals[intervals[:, 1] > intervals[:, 0]]
    if len(intervals) == 0:
        return EMPTY
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    ends = np.maximum.accumulate(intervals[:, 1])
    first = np.ones(len(intervals), dtype=bool)
    first[1:] = intervals[1:, 0] > ends[:-1]
    last = np.roll(first, -1)
    last[-1] = True
    return np.stack([intervals[first, 0], ends[last]], axis=1)


def total_ns(merged: Intervals) -> int:
    """Returns the total length of a merged set in nanoseconds."""
    return int((merged[:, 1] - merged[:, 0]).sum())


def union(a: Intervals, b: Intervals) -> Intervals:
    return merge(np.concatenate([a, b]))


def clip(merged: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """Returns the part of a merged set inside [start_ns, end_ns)."""
    lo = int(np.searchsorted(merged[:, 1], start_ns, side="right"))
    hi = int(np.searchsorted(merged[:, 0], end_ns, side="left"))
    if hi <= lo:
        return EMPTY
    return np.clip(merged[lo:hi], start_ns, end_ns)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Returns the part of merged `a` that is not in merged `b`."""
    if len(a) == 0 or len(b) == 0:
        return a
    lo, hi = min(a[0, 0], b[0, 0]), max(a[-1, 1], b[-1, 1])
    gaps = np.stack([np.concatenate([[lo], b[:, 1]]), np.concatenate([b[:, 0], [hi]])], axis=1)
    return intersect(a, gaps[gaps[:, 1] > gaps[:, 0]])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Returns the intersection of two merged sets, in O((n + m) log(n + m))."""
    if len(a) == 0 or len(b) == 0:
        return EMPTY
    # Each interval of `a` meets the run of `b` from the first that ends after its start
    # to the last that starts before its end.
    lo = np.searchsorted(b[:, 1], a[:, 0], side="right")
    hi = np.searchsorted(b[:, 0], a[:, 1], side="left")
    counts = np.maximum(hi - lo, 0)
    index_a = np.repeat(np.arange(len(a)), counts)
    offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    index_b = np.repeat(lo, counts) + offsets
    return np.stack([np.maximum(a[index_a, 0], b[index_b, 0]), np.minimum(a[index_a, 1], b[index_b, 1])], axis=1)


def measure_before(merged: Intervals, times_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the length in nanoseconds of the part of a merged set before each time t, in (-inf, t)."""
    if len(merged) == 0:
        return np.zeros(len(times_ns), dtype=np.int64)
    lengths = merged[:, 1] - merged[:, 0]
    cumulative = np.concatenate([[0], np.cumsum(lengths)])
    index = np.searchsorted(merged[:, 1], times_ns, side="right")
    inside = np.clip(times_ns - merged[np.minimum(index, len(merged) - 1), 0], 0, None)
    return cumulative[index] + np.where(index < len(merged), inside, 0)
