"""From raw marks of every rank to a row."""

from __future__ import annotations

from typing import Any

import pytest

from wirecost.collectives.request import Backend, BenchRequest
from wirecost.collectives.result import BenchNetwork, combine, percentile
from wirecost.collectives.table import line
from wirecost.spec import Native, Network

NETWORK = BenchNetwork(name="x", emulated=False)


def request(**changes: Any) -> BenchRequest:
    data: dict[str, Any] = {
        "sizes_bytes": (1000,),
        "backend": Backend.GLOO,
        "network": Network(name="x", native=Native()),
        "ranks_per_host": 2,
        "groups": ((0, 1),),
        "dtype": "int8",
    }
    return BenchRequest(**(data | changes))


def sample(rank: int, starts: list[int], ends: list[int], **changes: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "group": 0,
        "wrong": 0,
        "messages_per_run": 1,
        "drained": False,
        "per_round": 1,
        "rounds_ns": [e - s for s, e in zip(starts, ends, strict=True)],
        "starts_ns": starts,
        "ends_ns": ends,
        "common_clock": True,
    } | changes


CASE = {"collective": "all_reduce", "size_bytes": 1000, "mode": "in_place"}


def test_wait_is_kept_apart_from_transfer() -> None:
    """Rank 1 comes 30 ns late each time; the message itself takes 70 ns."""
    ranks = [sample(0, [0, 1000], [100, 1100]), sample(1, [30, 1030], [100, 1100])]
    row = combine(request(), NETWORK, CASE, ranks)
    assert (row.p50_ns, row.wait_ns, row.time_ns) == (70, 30, 70)
    assert row.busbw_Bps == pytest.approx(1000 / 70e-9)
    assert row.p95_ns is None  # of two messages there is no 95th percentile


def test_without_a_common_clock_the_shortest_duration_bounds_the_transfer() -> None:
    ranks = [sample(0, [0], [100], common_clock=False), sample(1, [5000], [5070], common_clock=False)]
    row = combine(request(), NETWORK, CASE, ranks)
    assert (row.p50_ns, row.wait_ns, row.time_ns) == (70, 30, 70)


def test_the_slowest_of_several_groups_counts() -> None:
    two = request(ranks_per_host=4, groups=((0, 1), (2, 3)))
    ranks = [
        sample(0, [0], [100]),
        sample(1, [0], [100]),
        sample(2, [0], [400], group=1, wrong=2),
        sample(3, [0], [400], group=1),
    ]
    row = combine(two, NETWORK, CASE, ranks)
    assert (row.time_ns, row.groups_ns, row.wrong, row.ranks) == (400, (100, 400), 2, 2)


def test_a_ping_pong_is_two_messages() -> None:
    case = CASE | {"collective": "send_recv", "mode": "out_of_place"}
    ranks = [sample(0, [0], [200], messages_per_run=2), sample(1, [0], [200], messages_per_run=2)]
    assert combine(request(), NETWORK, case, ranks).time_ns == 100


def test_unchecked_results_are_not_called_right() -> None:
    ranks = [sample(0, [0], [100], wrong=None), sample(1, [0], [100], wrong=None)]
    row = combine(request(check=False), NETWORK, CASE, ranks)
    assert row.wrong is None
    assert line([row]).split()[-1] == "N/A"


def test_what_the_bucket_lets_through_is_marked() -> None:
    shaped = BenchNetwork(
        name="x", emulated=True, nominal_rate_bps=8e9, measured_rate_bps=8e9, unshaped_bytes=1000
    )
    fast = [sample(0, [0], [100]), sample(1, [0], [100])]
    assert combine(request(), shaped, CASE, fast).unshaped
    assert not combine(request(), NETWORK, CASE, fast).unshaped
    drained = [sample(0, [0], [100], drained=True), sample(1, [0], [100], drained=True)]
    assert not combine(request(), shaped, CASE, drained).unshaped
    slow = [sample(0, [0], [100_000]), sample(1, [0], [100_000])]
    assert not combine(request(), shaped, CASE, slow).unshaped


def test_columns_are_where_scripts_expect_them() -> None:
    ranks = [sample(0, [0], [2_000_000]), sample(1, [0], [2_000_000])]
    cells = line([combine(request(), NETWORK, CASE, ranks)]).split()
    assert cells == [
        "1000",
        "1000",
        "int8",
        "sum",
        "-1",
        "N/A",
        "N/A",
        "N/A",
        "N/A",
        "2000.00",
        "0.00",
        "0.00",
        "0",
    ]


def test_percentiles_are_measured_values() -> None:
    values = list(range(1, 101))
    assert [percentile(values, p) for p in (50, 95, 99)] == [50, 95, 99]
    assert percentile([7], 99) == 7
