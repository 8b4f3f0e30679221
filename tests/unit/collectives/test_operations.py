"""Byte counts, bus factors and what must come out of each collective."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.collectives.dtypes import DTYPES, dtype_named
from wirecost.collectives.operations import BARRIER, COLLECTIVES, collective_name, partner
from wirecost.collectives.request import group_lists, size_range
from wirecost.errors import SpecError

names = st.sampled_from(sorted(COLLECTIVES))


@given(names, st.integers(2, 64), st.sampled_from([1, 2, 4, 8]), st.integers(1, 1 << 20))
def test_counts_add_up_to_the_total(name: str, ranks: int, item: int, units: int) -> None:
    entry = COLLECTIVES[name]
    total = entry.elements(units * item * ranks, item, ranks)
    assert total * item == units * item * ranks
    parts = {entry.send_count(total, ranks), entry.receive_count(total, ranks)}
    assert max(parts) == total
    assert parts <= {total, total // ranks}
    assert entry.shown_count(total, ranks) * (ranks if entry.splits else 1) == total


@given(names, st.integers(2, 64), st.sampled_from([1, 2, 4, 8]), st.integers(1, 1 << 20))
def test_a_size_that_does_not_divide_is_refused_with_ones_that_do(
    name: str, ranks: int, item: int, size: int
) -> None:
    entry = COLLECTIVES[name]
    unit = item * (ranks if entry.splits else 1)
    if size % unit == 0:
        assert entry.elements(size, item, ranks) == size // item
        return
    with pytest.raises(SpecError) as refusal:
        entry.elements(size, item, ranks)
    suggested = [int(word) for word in str(refusal.value).split("nearest: ")[1].replace(" B", "").split(" and ")]
    assert suggested
    for good in suggested:
        assert abs(good - size) < unit or good == unit
        entry.elements(good, item, ranks)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("broadcast", 1),
        ("reduce", 1),
        ("send_recv", 1),
        ("send_recv_bidirectional", 1),
    ],
)
def test_bus_factors_for_four_ranks(name: str, factor: float) -> None:
    assert COLLECTIVES[name].bus_factor(4) == factor


@pytest.mark.parametrize("name", [*COLLECTIVES, BARRIER])
def test_every_name_means_itself(name: str) -> None:
    assert collective_name(name) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("allreduce", "all_reduce"),
        ("all_reduce_perf", "all_reduce"),
        ("alltoall_perf", "all_to_all"),
        ("All-Gather", "all_gather"),
        ("sendrecv_perf", "send_recv_bidirectional"),
    ],
)
def test_usual_names(text: str, name: str) -> None:
    assert collective_name(text) == name


def test_an_unknown_collective_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean 'all_reduce'"):
        collective_name("all_redcue")


@given(st.integers(1, 32))
def test_pairs_are_mutual(half: int) -> None:
    for rank in range(2 * half):
        other = partner(rank, 2 * half)
        assert other != rank
        assert partner(other, 2 * half) == rank
    assert {partner(rank, 2 * half) for rank in range(2 * half)} == set(range(2 * half))


def test_dtypes_by_any_name() -> None:
    for name, dtype in DTYPES.items():
        assert dtype_named(name) is dtype
        assert dtype_named(dtype.torch) is dtype
    with pytest.raises(SpecError, match="unknown dtype 'float7'"):
        dtype_named("float7")


@given(st.integers(1, 1 << 20), st.integers(0, 1 << 20), st.integers(2, 8))
def test_sizes_by_factor(smallest: int, more: int, factor: int) -> None:
    sizes = size_range(smallest, smallest + more, factor=factor)
    assert sizes[0] == smallest
    assert all(b == a * factor for a, b in pairwise(sizes))
    assert sizes[-1] <= smallest + more < sizes[-1] * factor


def test_sizes_by_step_and_refusals() -> None:
    assert size_range(10, 25, step_bytes=5) == [10, 15, 20, 25]
    for arguments in ((8, 4), (0, 4)):
        with pytest.raises(SpecError):
            size_range(*arguments)
    with pytest.raises(SpecError, match="factor"):
        size_range(8, 16, factor=1)
    with pytest.raises(SpecError, match="more than 1000 sizes"):
        size_range(1, 10_000, step_bytes=1)


def test_rings_at_once_span_all_hosts_and_share_none_of_their_ranks() -> None:
    assert group_lists("2", 2, 2) == ((0, 2), (1, 3))
    assert group_lists("1", 1, 4) == ((0, 1, 2, 3),)
    assert group_lists("2", 1, 4) == ((0, 1), (2, 3))
    assert group_lists("0,3:1,2", 2, 2) == ((0, 3), (1, 2))
    for text in ("3", "x", "0", "0,1:"):
        with pytest.raises(SpecError):
            group_lists(text, 2, 2)
