"""A clock that jumps, or one damaged time, must not become an iteration of days."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.tracefiles import make_job
from wirecost.diagnostics import loses_data
from wirecost.trace import read
from wirecost.trace.result import TraceSet

DAY_US = 86_400 * 10**6


def job(layout: str = "compact", **options: Any) -> dict[str, Any]:
    trace = json.loads(make_job(1, 3, seed=5, kernels=3, layout=layout, **options)[0].text)
    for event in trace["traceEvents"]:
        if "ts" in event:
            event["ts"] += 500 * DAY_US  # so that there is a past to move to
    return trace


def answer(path: Path, trace: dict[str, Any]) -> TraceSet:
    path.write_text(json.dumps(trace))
    return read(path)


def pick(trace: dict[str, Any], cat: str, number: int = 1) -> dict[str, Any]:
    return [e for e in trace["traceEvents"] if e.get("cat") == cat][number]


def codes(traces: TraceSet) -> dict[str, str]:
    return {p.code: p.message for t in traces.traces for p in t.diagnostics}


@pytest.mark.parametrize("days", [-400, -3, 0.1, 2, 12])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_moved_kernel_is_named_and_not_counted(tmp_path: Path, days: float, which: int) -> None:
    sound, moved, without = job(), job(), job()
    kernel = pick(moved, "kernel", which)
    kernel["ts"] += days * DAY_US
    without["traceEvents"].remove(pick(without, "kernel", which))
    traces = answer(tmp_path / "rank0.json", moved)
    expected = answer(tmp_path / "rank0.json", without)
    assert traces.traces[0].parts == expected.traces[0].parts
    assert [i.parts for i in traces.traces[0].iterations] == [i.parts for i in expected.traces[0].iterations]
    assert kernel["name"][:40] in codes(traces)["clock_jump"]
    assert ("before" if days < 0 else "after") in codes(traces)["clock_jump"]
    (problem,) = [p for p in traces.traces[0].diagnostics if p.code == "clock_jump"]
    assert (problem.count, loses_data(problem)) == (1, True)
    assert "clock_jump" not in codes(answer(tmp_path / "rank0.json", sound))


def test_a_moved_step_makes_no_iteration(tmp_path: Path) -> None:
    trace = job()
    steps = [e for e in trace["traceEvents"] if e.get("name", "").startswith("ProfilerStep#")]
    steps[1]["ts"] += 5 * DAY_US
    traces = answer(tmp_path / "rank0.json", trace)
    longest = max(i.parts.window_ns for i in traces.traces[0].iterations)
    assert longest < 3600 * 10**9
    assert [i.window.name for i in traces.traces[0].iterations] == [steps[0]["name"], steps[2]["name"]]
    assert steps[1]["name"] in codes(traces)["clock_jump"]


def test_a_clock_that_jumps_in_mid_run_leaves_the_larger_part(tmp_path: Path) -> None:
    trace = job()
    kernels = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    late = sorted(e["ts"] for e in kernels)[2 * len(kernels) // 3]
    for event in kernels:
        if event["ts"] >= late:
            event["ts"] += 2 * DAY_US
    (rank,) = answer(tmp_path / "rank0.json", trace).traces
    assert rank.parts is not None and rank.parts.window_ns < 3600 * 10**9
    assert [p.code for p in rank.diagnostics].count("clock_jump") == 1


def test_a_kernel_that_lasts_days_is_left_out(tmp_path: Path) -> None:
    trace = job()
    pick(trace, "kernel")["dur"] = 3 * DAY_US
    (rank,) = answer(tmp_path / "rank0.json", trace).traces
    assert rank.parts is not None and rank.parts.window_ns < 3600 * 10**9
    assert "lasts days" in next(p.message for p in rank.diagnostics if p.code == "clock_jump")


def test_an_event_moved_by_less_than_an_hour_is_believed(tmp_path: Path) -> None:
    trace = job()
    pick(trace, "kernel", -1)["ts"] += 50 * 60 * 10**6
    (rank,) = answer(tmp_path / "rank0.json", trace).traces
    assert "clock_jump" not in [p.code for p in rank.diagnostics]
    assert rank.parts is not None and rank.parts.window_ns > 49 * 60 * 10**9
