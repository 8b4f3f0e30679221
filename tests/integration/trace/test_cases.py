"""Small inputs that once went wrong, each with its right value (shared/cases/trace/*/expected.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wirecost.breakdown import Parts
from wirecost.diagnostics import loses_data
from wirecost.trace import TraceError, TraceSet, read
from wirecost.trace.rank import RankTrace

pytestmark = pytest.mark.needs_shared


def case(shared: Path, name: str) -> Path:
    (found,) = (shared / "cases" / "trace").glob(f"{name}-*")
    return found


def one(shared: Path, name: str, file: str = "input.json", **options: Any) -> RankTrace:
    (trace,) = read(case(shared, name) / file, **options).traces
    return trace


def parts(trace: RankTrace) -> Parts:
    assert trace.parts is not None
    return trace.parts


def codes(traces: TraceSet) -> set[str]:
    return {p.code for p in traces.run_diagnostics} | {p.code for t in traces.traces for p in t.diagnostics}


@pytest.mark.parametrize(
    ("name", "comm_us"),
    [("01", 400), ("02", 400), ("03", 400), ("05", 400), ("07", 300), ("08", 500), ("29", 300)],
)
def test_communication_kernels_of_every_library_count_as_communication(
    shared: Path, name: str, comm_us: int
) -> None:
    trace = one(shared, name)
    compute_us = 100 if name == "29" else 200
    assert (parts(trace).comm_ns, parts(trace).compute_ns) == (comm_us * 1000, compute_us * 1000)
    assert parts(trace).overlapped_ns == 0


def test_new_categories_are_no_loss(shared: Path) -> None:
    trace = one(shared, "11")
    assert (parts(trace).comm_ns, parts(trace).compute_ns) == (100_000, 100_000)
    assert [p.code for p in trace.diagnostics if loses_data(p)] == []


def test_a_copy_inside_a_collective_is_communication(shared: Path) -> None:
    trace = one(shared, "15")
    assert (parts(trace).exposed_comm_ns, parts(trace).exposed_memory_ns) == (200_000, 0)
    assert [trace.calls.ops[o] for o in trace.calls.op] == ["all_gather"]


def test_a_mixed_trace_counts_both_kinds_of_collectives(shared: Path) -> None:
    trace = one(shared, "31")
    assert parts(trace).comm_fraction == 0.5
    assert {u.name.split("(")[0] for u in trace.kernels} >= {
        "void my_gemm_kernel",
        "ncclDevKernel_AllGather_RING_LL",
    }


def test_a_recording_without_steps_has_no_iterations(shared: Path) -> None:
    assert one(shared, "26").iterations == []


def rows(traces: TraceSet, rank: int) -> list[tuple[int, int]]:
    """(wait, transfer) of each collective of a rank in microseconds."""
    return [
        (int(m.wait_ns[at]) // 1000, int(m.transfer_ns[at]) // 1000)
        for m in traces.matched
        for at in [m.ranks.index(rank)]
    ]


def test_in_a_ring_of_sends_only_the_neighbours_of_the_late_rank_wait(shared: Path) -> None:
    traces = read(case(shared, "13"))
    assert [rows(traces, r) for r in range(4)] == [[(80, 100)], [(0, 100)], [(80, 100)], [(0, 100)]]
    (m,) = traces.matched
    assert (m.last_rank, m.cost_ns) == (3, 160_000)


def test_a_pipelines_receives_wait_for_their_own_senders(shared: Path) -> None:
    traces = read(case(shared, "14"))
    assert sorted(rows(traces, 0)) == [(0, 20), (300, 20)]
    assert sorted(rows(traces, 1)) == [(0, 20), (100, 20)]
    assert [(p.transfer_ns, p.bubble_ns, p.wait_ns) for p in traces.comm_parts] == [
        (40_000, 300_000, 0), (40_000, 100_000, 0),
    ]  # fmt: skip
    assert "point_to_point" not in codes(traces)


def test_a_clock_that_is_ahead_makes_no_straggler(shared: Path) -> None:
    traces = read(case(shared, "24"))
    assert all(s.late == s.cost_ns == 0 for s in traces.stragglers)
    for row in traces.collective_rows:
        assert (row.wait_ns, row.algbw_Bps) == (0, pytest.approx(1e11))
    (clock,) = traces.clocks
    assert (clock.rank, clock.offset_ns, clock.taken_out) == (1, 300_000, True)
    assert "clock_offsets" in codes(traces)


@pytest.mark.parametrize("file", ["input.json", "two_devices.json"])
def test_two_ranks_in_one_file_are_never_one_time_line(shared: Path, file: str) -> None:
    traces = read(case(shared, "12") / file)
    assert [(parts(t).compute_ns, parts(t).exposed_comm_ns, parts(t).overlapped_ns) for t in traces.traces] == [
        (500_000, 100_000, 0), (100_000, 500_000, 0),
    ]  # fmt: skip
    assert len(traces.traces) == traces.world_size == 2


def test_operator_ranges_of_nsight_systems_are_no_iterations(shared: Path) -> None:
    trace = one(shared, "16", "input.sqlite")
    assert trace.iterations == []
    p = parts(trace)
    assert (p.window_ns, p.compute_only_ns, p.exposed_comm_ns, p.idle_ns) == (190_000, 120_000, 60_000, 10_000)


def test_an_ascend_trace_is_split(shared: Path) -> None:
    trace = one(shared, "18", "trace_view.json")
    assert (parts(trace).compute_ns, parts(trace).comm_ns) == (100_000, 80_500)


def test_a_jax_trace_is_split(shared: Path) -> None:
    trace = one(shared, "19", "host.trace.json")
    assert (parts(trace).compute_ns, parts(trace).comm_ns, parts(trace).overlapped_ns) == (
        100_000,
        100_000,
        50_000,
    )


@pytest.mark.parametrize(
    ("name", "file", "what"),
    [
        ("20", "nccl_trace_rank_0", "Flight Recorder dump.*never loaded"), ("20", "p0", "Flight Recorder dump.*never loaded"),
        ("20", "nccl_trace_rank_1.json", "Flight Recorder dump"), ("21", "empty.json", "nothing was recorded"),
        ("21", "empty_list.json", "nothing was recorded"), ("21", "horovod_timeline.json", "Horovod"),
        ("21", "memory_timeline.raw.json", "memory time line"), ("21", "nccl_profiler_plugin.json", "NCCL's profiler plugin"),
        ("22", "input.json", r"no device events.*ProfilerActivity\.CUDA"), ("28", "", "its rank is unknown"),
        ("23", "", "both claim rank 0; read one directory at a time"),
    ],
)  # fmt: skip
def test_what_is_no_trace_or_no_set_of_them_is_refused_in_one_line(
    shared: Path, name: str, file: str, what: str
) -> None:
    path = case(shared, name) / file
    with pytest.raises(TraceError, match=what) as refused:
        read(path)
    assert "\n" not in str(refused.value)
    assert str(refused.value).count(str(path)) <= 2
    assert refused.value.exit_code == 2
