"""Several ranks or devices in one file: each counted for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.timelines import ALL_REDUCE, COMM_STREAM, HOST, Timeline
from wirecost.trace import TraceError, TraceSet, read


def codes(traces: TraceSet) -> dict[str, int]:
    return {p.code: p.count or 0 for t in traces.traces for p in t.diagnostics}


def busy(traces: TraceSet) -> list[tuple[str, int | None, int, int, int]]:
    """(file, rank, compute, communication, overlapped) of each trace in us."""
    return [
        (
            Path(t.file).name,
            t.rank,
            t.parts.compute_ns // 1000,
            t.parts.comm_ns // 1000,
            t.parts.overlapped_ns // 1000,
        )
        for t in traces.traces
        if t.parts is not None
    ]


def merged(prefixes: list[Any], hosts: list[Any] | None = None) -> Timeline:
    """Three steps of ranks in one file: rank r computes 100 (r + 1) us, then all reduce until 500 us."""
    line = Timeline()
    for r, device in enumerate(prefixes):
        host = (hosts or [HOST] * len(prefixes))[r]
        for k in range(3):
            at = 600 * k
            line.add("user_annotation", f"ProfilerStep#{k}", host, 1, at, 600)
            for n, (name, stream, start, length) in enumerate(
                [("gemm", 7, at + 20, 100 * (r + 1)), (ALL_REDUCE, COMM_STREAM, at + 120 + 100 * r, 380 - 100 * r)]
            ):
                number = 10 * k + n  # the same ids in every rank's process
                line.add("kernel", name, device, stream, start, length, stream=stream, correlation=number)
                line.add("cuda_runtime", "cudaLaunchKernel", host, 1, at + n, 1, correlation=number)
    return line


@pytest.mark.parametrize(
    "prefixes", [["[TP00] 0", "[TP01] 0"], ["rank0: 0", "rank1: 0"], [0, 1], ["GPU 0", "GPU 1"]]
)
def test_ranks_that_a_tool_merged_are_told_apart(tmp_path: Path, prefixes: list[Any]) -> None:
    hosts = [f"{str(p).removesuffix('0')}77" if isinstance(p, str) else 77 + p for p in prefixes]
    traces = read(merged(prefixes, hosts).write(tmp_path, "merged.json"))
    names = [f"merged.json (device {p})" for p in prefixes]
    assert busy(traces) == [(names[0], 0, 300, 1140, 0), (names[1], 1, 600, 840, 0)]
    assert codes(traces)["several_devices"] == 2
    assert {p.code for p in traces.run_diagnostics} >= {"rank_unknown"}


def test_with_prefixes_each_ranks_launches_are_its_own(tmp_path: Path) -> None:
    traces = read(merged(["[TP00] 0", "[TP01] 0"], ["[TP00] 77", "[TP01] 77"]).write(tmp_path))
    assert len(traces.traces) == 2
    for trace in traces.traces:
        assert [(i.window.source, i.parts.window_ns) for i in trace.iterations[:2]] == [("launches", 600_000)] * 2


def test_devices_of_one_process_share_its_steps(tmp_path: Path) -> None:
    line = Timeline(rank=0, world=1)
    for k in range(3):
        line.step(k, 100 * k, 100)
        for device in (0, 1):
            line.device(100 * k + 10, 50 + 20 * device, device=device, launched=100 * k + device)
    traces = read(line.write(tmp_path))
    assert [[i.window.source for i in t.iterations] for t in traces.traces] == [["launches"] * 3] * 2
    assert [t.rank for t in traces.traces] == [0, 1]


def test_a_device_that_the_process_only_touched_is_left_out(tmp_path: Path) -> None:
    line = Timeline(rank=3, world=4)
    for k in range(50):
        line.device(100 * k, 90, device=3)
    line.device(10, 1, "Memset (Device)", cat="gpu_memset", device=0)
    traces = read(line.write(tmp_path))
    assert [(t.rank, t.parts and t.parts.compute_ns) for t in traces.traces] == [(3, 4_500_000)]
    assert codes(traces) == {"stray_device": 1, "no_communication": 1}


def test_a_device_that_hardly_computes_but_communicates_is_one(tmp_path: Path) -> None:
    line = Timeline()
    for k in range(50):
        line.device(100 * k, 90, device=0)
    line.device(10, 5, ALL_REDUCE, device=1)
    assert len(read(line.write(tmp_path)).traces) == 2


def test_each_device_can_be_told_its_rank(tmp_path: Path) -> None:
    path = merged(["[TP00] 0", "[TP01] 0"]).write(tmp_path, "m.json")
    (tmp_path / "rank7.json").write_bytes(
        Timeline(rank=7, world=8).text().replace(b'"traceEvents": []', b'"traceEvents": [' + _event() + b"]")
    )
    with pytest.raises(TraceError, match="its rank is unknown"):
        read(tmp_path)
    told = [f"{path.name} (device [[]TP0{r}] 0)={r}" for r in (0, 1)]
    assert [t.rank for t in read(tmp_path, ranks=told).traces] == [0, 1, 7]


def _event() -> bytes:
    return b'{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 7, "tid": 7, "ts": 1, "dur": 5, "args": {}}'
