"""What the profiler adds, by the step time that the job measured without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.timelines import Timeline
from wirecost.trace import TraceSet, read


def traced(folder: Path, step_time_ns: int | None) -> TraceSet:
    """Three iterations of 100 us, 20 of them idle."""
    line = Timeline(rank=0)
    for k in range(3):
        line.step(k, 100 * k, 100)
        line.device(100 * k + 10, 80, launched=100 * k + 1)
    line.device(309.999, 0.001, launched=299)
    return read(line.write(folder), step_time_ns=step_time_ns)


def test_the_added_time_is_the_traced_less_the_measured(tmp_path: Path) -> None:
    cost = traced(tmp_path, 90_000).profiler_cost
    assert cost is not None
    # The last iteration lacks the host's time before a next one.
    assert (cost.traced_ns, cost.iterations) == (pytest.approx(100_000, rel=1e-4), 2)
    assert cost.added_ns == pytest.approx(10_000, rel=1e-3)
    assert cost.share == pytest.approx(1 / 9, rel=1e-3)
    assert "at most that much of the 0.02 ms idle" in cost.sentence


def test_more_than_the_idle_time_is_not_all_the_hosts(tmp_path: Path) -> None:
    cost = traced(tmp_path, 50_000).profiler_cost
    assert cost is not None and "not all of it" in cost.sentence


def test_a_shorter_trace_is_said_to_be_of_something_else(tmp_path: Path) -> None:
    cost = traced(tmp_path, 200_000).profiler_cost
    assert cost is not None and "50.0% less" in cost.sentence


def test_without_a_step_time_or_iterations_there_is_no_cost(tmp_path: Path) -> None:
    assert traced(tmp_path, None).profiler_cost is None
    line = Timeline(rank=0)
    line.device(0, 5)
    assert read(line.write(tmp_path), step_time_ns=1000).profiler_cost is None
