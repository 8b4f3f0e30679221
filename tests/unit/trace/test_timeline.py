"""The time line that pages draw: exact sums in however few cells, and nothing idle painted as work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirecost.breakdown import split_window
from wirecost.breakdown.intervals import from_pairs
from wirecost.trace.recorded import Columns
from wirecost.trace.timeline import CATEGORIES, COMMUNICATION, COMPUTE, MEMORY, Timeline

SPAN = 10_000

pairs = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, 300)), max_size=60)


def columns(compute: list[tuple[int, int]], comm: list[tuple[int, int]], memory: list[tuple[int, int]]) -> Columns:
    spans = np.array([*compute, *comm, *memory], dtype=np.int64).reshape(-1, 2)
    n = len(spans)
    kind = np.array([0] * (len(compute) + len(comm)) + [1] * len(memory), dtype=np.int8)
    is_comm = np.array([False] * len(compute) + [True] * len(comm) + [False] * len(memory), dtype=np.bool_)
    return Columns(
        spans[:, 0], spans[:, 1], kind, np.arange(n), np.arange(n) % 2, is_comm, [f"k{i}" for i in range(n)],
        [("0", "7"), ("0", "20")], {},
    )  # fmt: skip


def made(parts: list[list[tuple[int, int]]], limit: int) -> Timeline:
    spans = [[(s, min(s + n, SPAN)) for s, n in part] for part in parts]
    sets = [from_pairs(part) for part in spans]
    return Timeline.of(0, SPAN, *sets, columns=columns(*spans), base_ns=10**18, limit=limit)


@settings(deadline=None, max_examples=40)
@given(pairs, pairs, pairs, st.integers(4, 200))
def test_the_sums_are_exact_in_however_few_cells(
    compute: list[tuple[int, int]], comm: list[tuple[int, int]], memory: list[tuple[int, int]], limit: int
) -> None:
    line = made([compute, comm, memory], limit)
    sets = [from_pairs((s, min(s + n, SPAN)) for s, n in part) for part in (compute, comm, memory)]
    assert len(line.edges_ns) <= limit + 1
    assert (line.edges_ns[0], line.edges_ns[-1]) == (10**18, 10**18 + SPAN)
    assert (np.diff(line.edges_ns) > 0).all()
    for i, (start, end) in enumerate(zip(line.edges_ns[:-1], line.edges_ns[1:], strict=True)):
        parts = split_window(int(start) - 10**18, int(end) - 10**18, compute=sets[0], comm=sets[1], memory=sets[2])
        assert line.sums_ns[i].tolist() == [
            parts.compute_only_ns, parts.overlapped_ns, parts.exposed_comm_ns, parts.exposed_memory_ns,
        ]  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(pairs, pairs, st.integers(4, 40))
def test_long_stretches_keep_their_edges(
    compute: list[tuple[int, int]], comm: list[tuple[int, int]], limit: int
) -> None:
    whole, line = made([compute, comm, []], 10**6), made([compute, comm, []], limit)
    length = np.diff(whole.edges_ns)
    long = [e for i, n in enumerate(length) if n >= max(line.cell_ns, 1) for e in whole.edges_ns[i : i + 2]]
    assert set(long) <= set(line.edges_ns.tolist())


def test_a_thinned_time_line_is_thinned_again_exactly() -> None:
    compute = [(10 * i, 3) for i in range(900)]
    whole = made([compute, [], []], 10**6)
    once, twice = whole.thinned(50), whole.thinned(300).thinned(50)
    for line in (once, twice):
        assert len(line.edges_ns) <= 51
        assert [int(getattr(line, f"{c}_ns").sum()) for c in CATEGORIES] == [2700, 0, 0, 0]
    assert whole.cell_ns == 0 and once.cell_ns > 0


def test_nothing_idle_is_work_where_short_kernels_stand_far_apart() -> None:
    """One nanosecond in ten is work: no cell of the thinned line may say much more than a tenth."""
    line = made([[(10 * i, 1) for i in range(1000)], [], []], 60)
    share = line.compute_ns / np.diff(line.edges_ns)
    assert share.max() < 0.2


def test_the_longest_events_are_kept_and_all_are_counted() -> None:
    compute = [(100 * i, i + 1) for i in range(60)]
    line = made([compute, [(3, 5000)], [(7, 90)]], 10)
    events = line.events
    assert (events.total, len(events.start_ns)) == (62, 10)
    assert events.total_ns == sum(n for _, n in compute) + 5090
    lengths = events.end_ns - events.start_ns
    assert sorted(lengths.tolist()) == sorted([5000, 90, *(n for _, n in compute[-8:])])
    assert set(events.kind.tolist()) == {COMPUTE, COMMUNICATION, MEMORY}
    assert events.names[int(events.name[0])] == "k60"


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_an_absurd_limit_still_gives_a_line(limit: int) -> None:
    line = made([[(10 * i, 1) for i in range(100)], [], []], limit)
    assert int(line.compute_ns.sum()) == 100
