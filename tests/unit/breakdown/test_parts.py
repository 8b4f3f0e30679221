from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from wirecost.breakdown import Parts, split_window
from wirecost.breakdown.intervals import EMPTY, from_pairs

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


@given(pairs, pairs, pairs, st.integers(0, 30), st.integers(30, 60))
def test_every_instant_belongs_to_one_part(
    compute: list[tuple[int, int]],
    comm: list[tuple[int, int]],
    memory: list[tuple[int, int]],
    start: int,
    end: int,
) -> None:
    def at(intervals: list[tuple[int, int]], t: int) -> bool:
        return any(s <= t < e for s, e in intervals)

    counted = dict.fromkeys(("compute_only", "overlapped", "exposed_comm", "exposed_memory", "idle"), 0)
    for t in range(start, end):
        if at(compute, t):
            counted["overlapped" if at(comm, t) else "compute_only"] += 1
        elif at(comm, t):
            counted["exposed_comm"] += 1
        elif at(memory, t):
            counted["exposed_memory"] += 1
        else:
            counted["idle"] += 1
    parts = split_window(start, end, compute=from_pairs(compute), comm=from_pairs(comm), memory=from_pairs(memory))
    assert {name: getattr(parts, f"{name}_ns") for name in counted} == counted
    assert parts.window_ns == end - start


def test_parts_must_sum_to_the_window() -> None:
    with pytest.raises(ValidationError, match="sum to 9 ns, not to the window's 10 ns"):
        Parts(window_ns=10, compute_only_ns=9, overlapped_ns=0, exposed_comm_ns=0, exposed_memory_ns=0, idle_ns=0)


def test_fractions() -> None:
    parts = Parts(
        window_ns=100, compute_only_ns=40, overlapped_ns=20, exposed_comm_ns=30, exposed_memory_ns=5, idle_ns=5
    )
    assert (parts.comm_fraction, parts.comm_busy, parts.overlap) == (0.3, 0.5, 0.4)
    assert (parts.compute_ns, parts.comm_ns) == (60, 50)


def test_what_is_unknown_is_none() -> None:
    empty = split_window(5, 5, compute=EMPTY, comm=EMPTY, memory=EMPTY)
    assert empty.comm_fraction is None
    assert empty.overlap is None


def test_a_window_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="before it starts"):
        split_window(5, 4, compute=EMPTY, comm=EMPTY, memory=EMPTY)
