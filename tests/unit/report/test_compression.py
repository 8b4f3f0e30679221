"""Bytes saved beside the loss, on invented results."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from support.results import STUDY, invented_store, replace_breakdown
from wirecost.report import read_report
from wirecost.report.compression import compressions
from wirecost.report.data import rows, to_json
from wirecost.report.page import render_page
from wirecost.report.terminal import print_report
from wirecost.spec import plan_name

PLANS = "plans: [ddp, ddp-int8, zero1, ddp-powersgd]"


def store_with_bytes(root: Path, plan: str, size_bytes: int | None) -> None:
    """Results in which that plan's collectives sum to `size_bytes` (the others' to 4 MB in 4 iterations)."""
    store = invented_store(root, text=STUDY.replace("plans: [all-reduce]", PLANS))
    for result in store.results():
        if plan_name(result.experiment) == plan:
            path = result.directory / "breakdown.json"
            data = json.loads(path.read_text())
            for collective in data["collectives"]:
                collective["bytes"] = size_bytes
            replace_breakdown(result.directory, data)


def test_plans_that_differ_in_gradient_traffic_are_held_against_the_native_one(tmp_path: Path) -> None:
    store_with_bytes(tmp_path, "ddp-int8", 1_000_000)
    report = read_report(tmp_path)
    found = compressions(report)
    assert {c.cell.plan for c in found} == {"ddp", "ddp-int8", "ddp-powersgd"}
    two = [c for c in found if c.cell.scale.ranks == 2]
    assert [(c.traffic, c.sent_bytes, c.saved) for c in two[:3]] == [
        ("native", 1e6, 0.0),  # 2 (n-1)/n of 1 MB
        ("int8", 0.25e6, 0.75),
        ("powersgd, rank 4", 1e6, 0.0),
    ]
    assert two[0].losses == pytest.approx([5, 4.9, 4.8, 4.7])
    row = next(r for r in rows(report) if r["plan"] == "ddp-int8" and r["ranks"] == 2)
    assert (row["sent_bytes"], row["loss_first"], row["loss_last"]) == (0.25e6, 5, pytest.approx(4.7))
    written = json.loads(to_json(report))["gradient_traffic"]
    assert [w["saved"] for w in written if w["ranks"] == 2][:3] == [0.0, 0.75, 0.0]

    console = Console(file=io.StringIO(), width=160, highlight=False, color_system=None)
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    table = console.file.getvalue().split("Gradient traffic")[1].splitlines()
    assert next(line for line in table if "int8" in line).split()[-5:] == [
        "244.1",
        "KiB",
        "75.0%",
        "5.0000",
        "4.7000",
    ]
    assert "75.0 %" in render_page(report)


def test_bytes_that_are_not_known_are_not_zero(tmp_path: Path) -> None:
    store_with_bytes(tmp_path, "ddp", None)
    report = read_report(tmp_path)
    assert all(c.saved is None for c in compressions(report))
    assert "unknown" in render_page(report)


def test_a_study_without_compression_has_no_such_table(tmp_path: Path) -> None:
    invented_store(tmp_path)
    report = read_report(tmp_path)
    assert compressions(report) == []
    assert "Gradient traffic" not in render_page(report)
