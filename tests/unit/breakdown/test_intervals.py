"""Interval arithmetic against a set of instants, which is slow and can't be wrong."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wirecost.breakdown.intervals import (
    EMPTY,
    Intervals,
    clip,
    from_pairs,
    intersect,
    merge,
    subtract,
    total_ns,
    union,
)

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def instants(intervals: Intervals | list[tuple[int, int]]) -> set[int]:
    return {t for start, end in intervals for t in range(start, end)}


def is_merged(intervals: Intervals) -> bool:
    flat = intervals.ravel()
    return bool(np.all(np.diff(flat) > 0))


@given(pairs)
def test_merge_is_the_union_of_instants(a: list[tuple[int, int]]) -> None:
    merged = from_pairs(a)
    assert is_merged(merged)
    assert instants(merged) == instants(a)
    assert total_ns(merged) == len(instants(a))


@given(pairs, pairs)
def test_two_sets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    x, y = from_pairs(a), from_pairs(b)
    results = [union(x, y), intersect(x, y), subtract(x, y)]
    expected = [instants(a) | instants(b), instants(a) & instants(b), instants(a) - instants(b)]
    assert [instants(result) for result in results] == expected
    assert [is_merged(result) for result in results] == [True, True, True]


@given(pairs, st.integers(0, 60), st.integers(0, 60))
def test_clip(a: list[tuple[int, int]], start: int, end: int) -> None:
    assert instants(clip(from_pairs(a), start, end)) == {t for t in instants(a) if start <= t < end}


def test_nanoseconds_stay_exact_beyond_double_precision() -> None:
    start = 1_700_000_000_000_000_001
    assert total_ns(from_pairs([(start, start + 1), (start + 1, start + 3)])) == 3


def test_empty() -> None:
    assert len(merge(EMPTY)) == len(intersect(EMPTY, from_pairs([(1, 2)]))) == total_ns(EMPTY) == 0
