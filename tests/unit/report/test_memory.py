"""Peak memory in the report, on invented results."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from support.results import invented_store, replace_breakdown
from wirecost.breakdown import Breakdown, MemoryKind, OutOfMemory
from wirecost.report import read_report
from wirecost.report.data import rows
from wirecost.report.memory import peak_rows
from wirecost.report.page import render_page
from wirecost.report.terminal import print_report
from wirecost.study import Status
from wirecost.study.store import Outcome


def test_the_largest_rank_counts_and_running_out_is_said(tmp_path: Path) -> None:
    out = OutOfMemory(kind=MemoryKind.DEVICE_ALLOCATED, peak_bytes=70 * 2**30, asked_bytes=2**31)
    store = invented_store(tmp_path, outcomes={0: Outcome(status=Status.OOM, reason="too big", memory=out)})
    assert [r.peak.peak_bytes for r in peak_rows(read_report(tmp_path))].count(70 * 2**30) == 1
    for result in store.results()[1:]:
        path = result.directory / "breakdown.json"
        data = json.loads(path.read_text())
        data["peak_memory"] = [
            {"rank": r, "kind": "device_allocated", "since": "first_measured_iteration",
             "peak_bytes": (r + 1) * 2**30, "reserved_bytes": (r + 2) * 2**30}
            for r in range(data["world_size"])
        ]  # fmt: skip
        replace_breakdown(result.directory, data)
    report = read_report(tmp_path)
    oom, done = rows(report)[:2]
    assert (oom["peak_memory_bytes"], oom["oom_asked_bytes"]) == (70 * 2**30, 2**31)
    assert (done["peak_memory_bytes"], done["peak_memory_reserved_bytes"]) == (2 * 2**30, 3 * 2**30)
    assert done["peak_memory_kind"] == "device_allocated"
    assert done["oom_asked_bytes"] is None
    console = Console(file=io.StringIO(), width=160, highlight=False, color_system=None)
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "OOM at 70 GiB, asked for 2 GiB" in shown
    assert "allocated on the GPU" in shown
    assert "OOM at 70 GiB, asked for 2 GiB" in render_page(report)


def test_results_without_peaks_stay_readable_and_show_no_table(tmp_path: Path) -> None:
    invented_store(tmp_path)
    report = read_report(tmp_path)
    assert peak_rows(report) == []
    assert rows(report)[0]["peak_memory_bytes"] is None


def test_one_rank_unknown_leaves_the_largest_unknown(tmp_path: Path) -> None:
    breakdown = invented_store(tmp_path).results()[0].breakdown
    assert breakdown is not None
    data = json.loads(breakdown.model_dump_json())
    peak = {"rank": 0, "kind": "resident_set", "since": "process_start", "peak_bytes": 1}
    data["peak_memory"] = [peak]
    assert Breakdown.model_validate(data).largest_peak() is None
    data["peak_memory"] = [peak, {**peak, "rank": 1, "kind": "device_allocated"}]
    with pytest.raises(ValueError, match="more than one kind"):
        Breakdown.model_validate(data)
