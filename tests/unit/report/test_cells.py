"""Cells of hosts of several sizes, and cells that were predicted instead of measured."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from support.results import STUDY, invented_breakdown, invented_store
from wirecost.breakdown import Breakdown, Source
from wirecost.report import StudyReport, read_report
from wirecost.report.data import rows
from wirecost.report.page import render_page
from wirecost.report.terminal import print_report
from wirecost.study import Status, Store
from wirecost.study.store import Outcome, StoreError


def shown(report: StudyReport) -> str:
    console = Console(file=io.StringIO(), width=140, highlight=False)
    print_report(report, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def predictions_for(store: Store) -> dict[str, Breakdown]:
    """Twice the communication that was invented as measured."""
    return {
        e.slug: invented_breakdown(e, stretch=2).model_copy(update={"source": Source.PREDICTED})
        for e in store.study().model_experiments()
    }


def test_hosts_of_another_size_make_another_network(tmp_path: Path) -> None:
    text = STUDY.replace("hosts: [2, 4]", "hosts: [2, 2x2, 4]")
    report = read_report(invented_store(tmp_path, text=text).root)
    assert set(report.networks) == {
        f"emulated-{rate}, {size} per host" for rate in ("100m", "1g") for size in (1, 2)
    }
    scale = next(s for s in report.scales("all-reduce") if s.ranks == 4)
    for size in (1, 2):
        cell = report.cell("small", f"emulated-1g, {size} per host", "all-reduce", scale)
        assert cell is not None
        assert cell.result.experiment.ranks_per_host == size
    assert "emulated-100m, 2 per host" in shown(report)


def test_predictions_stand_where_nothing_was_measured(tmp_path: Path) -> None:
    too_few = Outcome(status=Status.SKIPPED, reason="needs more")
    out_of_memory = Outcome(status=Status.OOM, reason="too big")
    store = invented_store(tmp_path, outcomes={0: too_few, 1: out_of_memory})
    predictions = predictions_for(store)
    report = read_report(tmp_path, predictions)
    skipped, oom, done = report.cells[:3]
    said = predictions[skipped.result.experiment.slug].comm_fraction()
    assert said is not None
    assert skipped.text == f"{said.median:.2f}p"
    assert oom.text == "OOM"
    assert done.text[-1].isdigit()
    assert "p: predicted, not measured" in shown(report)
    assert f"<em>{skipped.text}</em>" in render_page(report)
    row, _, measured = rows(report)[:3]
    assert (row["status"], row["comm_fraction"]) == ("skipped", None)
    assert row["predicted_comm_fraction"] == pytest.approx(said.median)
    assert measured["predicted_iteration_ms"] > measured["iteration_ms"]
    assert not read_report(tmp_path).predicted


def test_cells_that_were_never_run_can_be_predicted(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    predictions = predictions_for(store)
    for experiment in store.study().model_experiments()[4:]:
        store.forget(experiment)
    assert len(read_report(tmp_path).cells) == 4
    report = read_report(tmp_path, predictions)
    assert len(report.cells) == 16
    assert sum(c.predicted_fraction is not None for c in report.cells) == 12
    assert "skipped: 12 experiments: not run" in shown(report)
    assert json.dumps(rows(report))


def test_many_experiments_that_end_for_one_reason_are_one_line(tmp_path: Path) -> None:
    reason = Outcome(status=Status.SKIPPED, reason="too few")
    invented_store(tmp_path, outcomes=dict.fromkeys(range(5), reason))
    assert shown(read_report(tmp_path)).count("too few") == 1
    invented_store(tmp_path / "less", outcomes=dict.fromkeys(range(2), reason))
    assert shown(read_report(tmp_path / "less")).count("too few") == 2


def test_predictions_of_the_same_cells_with_other_iterations_count(tmp_path: Path) -> None:
    store = invented_store(tmp_path / "a", outcomes={0: Outcome(status=Status.SKIPPED, reason="needs more")})
    longer = invented_store(tmp_path / "b", text=STUDY.replace("hosts:", "iterations: 99\nhosts:"))
    assert read_report(store.root, predictions_for(longer)).cells[0].text.endswith("p")


def test_predictions_of_another_study_are_refused(tmp_path: Path) -> None:
    store = invented_store(tmp_path / "a")
    other = invented_store(
        tmp_path / "b", text=STUDY.replace("name: small", "name: else").replace("name: large", "name: other")
    )
    with pytest.raises(StoreError, match="none of its cells was predicted"):
        read_report(store.root, predictions_for(other))
