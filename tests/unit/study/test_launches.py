from __future__ import annotations

from typing import Any

import pytest

from wirecost.study.launches import launch_bound

MS = 1_000_000


def samples(issue_ms: float | None, device_ms: float, pace: str = "yyyyy") -> list[dict[str, Any]]:
    return [
        {
            "start_ns": 7,
            "end_ns": 7 + round(device_ms * MS),
            "host_issue_ns": None if issue_ms is None else round(issue_ms * MS),
            "kept_pace": None if issue_ms is None else one == "y",
        }
        for one in pace
    ]


def test_a_host_that_takes_as_long_as_the_device_is_named_with_both_times() -> None:
    bound = samples(9.6, 10)
    bound[0]["host_issue_ns"], bound[-1]["host_issue_ns"] = 9 * MS, 19 * MS
    (warning,) = launch_bound([samples(6, 10), bound])
    assert warning.code == "launch_bound"
    assert (
        "1 of 2 ranks: on rank 1 the host takes 9.6 ms (9.0 to 19.0) to issue an iteration of 10.0 ms"
        in warning.message
    )
    assert "larger micro_batch or, in a plan, graphs: true" in (warning.remedy or "")


@pytest.mark.parametrize(
    "rank",
    [
        pytest.param(samples(9.4, 10), id="the host is done before"),
        pytest.param(samples(10, 10, "yynnn"), id="held up by a full queue"),
        pytest.param(samples(None, 10), id="a CPU"),
        pytest.param([{"start_ns": 0, "end_ns": 10 * MS}], id="samples of an earlier version"),
        pytest.param([], id="no samples"),
    ],
)
def test_else_nothing_is_said(rank: list[dict[str, Any]]) -> None:
    assert launch_bound([rank]) == []


def test_one_slow_iteration_decides_nothing() -> None:
    rank = samples(5, 10)
    rank[2]["host_issue_ns"] = 50 * MS
    assert launch_bound([rank]) == []
