"""Real traces against exact answers that were computed independently."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from wirecost.trace import TraceSet, read
from wirecost.trace.source import NoDeviceEvents
from wirecost.trace.tables import PARTS

pytestmark = pytest.mark.needs_shared

# Names in the reference of bytes -> files here, by the rank and version they tell of.
_FILES = {"nccl_data": "ddp-2-ranks-nccl-args.json.gz", "resnet_act_checkpoint": "rccl-mi300-rank0.json.gz"}


def expected(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "traces" / "expected.json").read_text())


def parts(got: Any) -> dict[str, int]:
    return {name: getattr(got, name) for name in PARTS}


def test_every_file_is_exact_to_the_nanosecond(shared: Path) -> None:
    checked = 0
    for name, want in expected(shared).items():
        if not want or "whole" not in want:
            continue
        window = "gpu" if want["steps_gpu_annotation"] else "cpu" if want["steps_cpu_window"] else "whole"
        trace = read(shared / "traces" / name, window=window).traces[0]
        assert parts(trace.parts) == {k: want["whole"][k] for k in PARTS}, name
        steps = want["steps_gpu_annotation"] or want["steps_cpu_window"]
        found = {i.window.name: parts(i.parts) for i in trace.iterations}
        assert found == {s: {k: p[k] for k in PARTS} for s, p in steps.items()}, name
        assert len(trace.calls) == want["n_comm"]
        durations = sum(c["sum_ns"] for c in want["collectives"].values())
        assert int((trace.calls.end_ns - trace.calls.start_ns).sum()) == durations
        checked += 1
    assert checked >= 11


@pytest.fixture(scope="module")
def dlrm() -> TraceSet:
    from support.paths import SHARED

    return read(SHARED / "traces" / "dlrm-8-ranks")


def test_skew_over_eight_ranks(shared: Path, dlrm: TraceSet) -> None:
    reference = json.loads((shared / "traces" / "dlrm8_crossrank_reference.json").read_text())
    assert len(dlrm.matched) == len(reference)
    for got, want in zip(dlrm.matched, reference, strict=True):
        assert got.start_skew_ns == want["start_skew_us"] * 1000
        assert got.end_skew_ns == want["end_skew_us"] * 1000
        assert int(got.duration_ns.min()) == want["dur_min"] * 1000
        assert int(got.duration_ns.max()) == want["dur_max"] * 1000
        assert got.last_rank == want["last_rank"]
        assert got.basis == "aligned"


def test_operations_of_point_to_point_kernels_come_from_the_annotations(dlrm: TraceSet) -> None:
    assert len(dlrm.traces) == 8
    for trace in dlrm.traces:
        counts = {op: int((trace.calls.op == n).sum()) for n, op in enumerate(trace.calls.ops)}
        assert counts == {"all_to_all": 5, "all_reduce": 3}
        assert {p.code for p in trace.diagnostics} == {"bytes_unknown"}


def test_bytes_and_bus_bandwidth(shared: Path) -> None:
    reference = json.loads((shared / "traces" / "collective_bytes_reference.json").read_text())
    checked = 0
    for source, want in reference.items():
        file = next((f for stem, f in _FILES.items() if stem in source), None)
        if file is None:
            continue
        traces = read(shared / "traces" / file)
        groups: dict[str, dict[str, float]] = {}
        for key, numbers in want["groups"].items():
            op = re.findall(r"'(\w+)'", key)[0].replace("allreduce", "all_reduce")
            total = groups.setdefault(op, {"n": 0, "bytes": 0, "dur_us": 0.0})
            for field in total:
                total[field] += numbers[field]
        rows = {r.op: r for r in traces.collective_rows if r.bytes is not None}
        assert {op: (r.count, r.bytes) for op, r in rows.items()} == {
            op: (g["n"], g["bytes"]) for op, g in groups.items()
        }
        for op, r in rows.items():
            assert r.duration_ns == pytest.approx(groups[op]["dur_us"] * 1000)
        unknown = sum(r.count for r in traces.collective_rows if r.bytes is None)
        assert unknown == want["without_args"]
        checked += 1
    assert checked == 2


def test_a_cpu_run_is_called_one(shared: Path) -> None:
    (trace,) = read(shared / "traces" / "gloo-cpu-only-rank34.json.gz").traces
    assert (trace.rank, trace.world_size, trace.device) == (34, 300, "cpu")
    assert {p.code for p in trace.diagnostics} == {"cpu_only", "bytes_unknown"}


def test_no_device_events_is_no_answer_and_says_how_to_record_them(shared: Path) -> None:
    with pytest.raises(NoDeviceEvents, match=r"records 6 collectives of the host alone.*ProfilerActivity\.CUDA"):
        read(shared / "traces" / "no-distributed-info.json.gz")
