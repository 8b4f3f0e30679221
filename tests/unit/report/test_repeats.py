"""A study with repeats is reported over them: one sample for each launch, and disturbed ones are marked."""

from __future__ import annotations

import io
import json
import math
import statistics
from pathlib import Path

import pytest
from rich.console import Console

from support.results import COMPUTE_MS, STUDY, invented_store
from wirecost.comparison.studies import compare_studies
from wirecost.report import read_report
from wirecost.report.data import rows, to_json
from wirecost.report.page import render_page
from wirecost.report.study_report import StudyReport
from wirecost.report.terminal import print_report
from wirecost.study import Status
from wirecost.study.store import Outcome

REPEATED = STUDY + "repeats: 3\n"


def printed(report: StudyReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_cell_is_an_experiment_and_its_samples_are_repeats(tmp_path: Path) -> None:
    invented_store(tmp_path, text=REPEATED)
    report = read_report(tmp_path)
    assert len(report.cells) == 16
    for row in rows(report):
        assert (row["repeats"], row["iterations"]) == (3, 4)
        transfer_ms = row["iteration_ms"] - COMPUTE_MS
        # The second repeat has the median: its transfers are 1 % longer than those of the first.
        times = [COMPUTE_MS + transfer_ms / 1.01 * factor for factor in (1, 1.01, 1.02)]
        logs = [math.log(time) for time in times]
        half = 4.302653 * statistics.stdev(logs) / 3**0.5
        assert math.log(row["iteration_ms_low"]) == pytest.approx(statistics.fmean(logs) - half, abs=1e-5)
        assert math.log(row["iteration_ms_high"]) == pytest.approx(statistics.fmean(logs) + half, abs=1e-5)
        assert row["comm_fraction_low"] < row["comm_fraction"] < row["comm_fraction_high"]
        assert row["disturbed"] == ""


def test_speed_ups_are_over_repeats(tmp_path: Path) -> None:
    invented_store(tmp_path, text=REPEATED)
    document = json.loads(to_json(read_report(tmp_path)))
    assert document["speed_ups"]
    for speed_up in document["speed_ups"]:
        assert (speed_up["n_fast"], speed_up["n_slow"]) == (3, 3)
        assert speed_up["low"] < speed_up["speed_up"] < speed_up["high"]
    text = printed(read_report(tmp_path))
    assert "median of n repeats" in text
    assert "95 % interval over repeats" in text
    assert "over repeats (95 % interval; n = 3 each)" in " ".join(text.split())


def test_a_repeat_that_failed_is_named_and_the_others_count(tmp_path: Path) -> None:
    invented_store(tmp_path, text=REPEATED, outcomes={1: Outcome(status=Status.FAILED, reason="it fell over")})
    report = read_report(tmp_path)
    assert rows(report)[0]["repeats"] == 2
    assert [row.what for row in report.unfinished()] == [
        "small on emulated-100m, all-reduce, strong <2, 16>, repeat 2"
    ]


def test_one_finished_repeat_has_no_interval(tmp_path: Path) -> None:
    failed = Outcome(status=Status.FAILED, reason="it fell over")
    invented_store(tmp_path, text=REPEATED, outcomes={1: failed, 2: failed})
    report = read_report(tmp_path)
    assert rows(report)[0]["repeats"] == 1
    assert rows(report)[0]["iteration_ms_low"] is None
    assert "(one repeat)" in printed(report)


def test_disturbed_experiments_are_marked_in_every_table(tmp_path: Path) -> None:
    invented_store(tmp_path, text=REPEATED, disturbed=[3])
    report = read_report(tmp_path)
    assert {row["disturbed"] for row in rows(report)} == {"busy_machine"}
    text = printed(report)
    assert "~ disturbed: 16 of 16 (busy_machine)" in text
    for title in ("Communication as a fraction", "Iteration, ms", "Speed-up of", "Expected from bytes"):
        table = text[text.index(title) :].split("\n\n")[0:2]
        assert "~" in "".join(table), title
    page = render_page(report)
    assert "disturbed (busy_machine)" in page
    document = json.loads(to_json(report))
    assert {s["disturbed"] for s in document["speed_ups"]} == {"busy_machine"}
    assert {e["disturbed"] for e in document["expected_from_bytes_and_rate"]} == {"busy_machine"}


def test_undisturbed_experiments_have_no_mark(tmp_path: Path) -> None:
    invented_store(tmp_path, text=REPEATED)
    assert "~" not in printed(read_report(tmp_path))


def test_studies_with_repeats_are_compared_over_them(tmp_path: Path) -> None:
    invented_store(tmp_path / "a", text=REPEATED)
    invented_store(tmp_path / "b", text=STUDY)
    same = compare_studies(tmp_path / "a", tmp_path / "a")
    assert len(same.pairs) == 16
    assert {p.comparison.sample for p in same.pairs} == {"repeat"}
    ratio = same.pairs[0].comparison.speedup
    assert ratio is not None
    assert (ratio.value, ratio.n_numerator, ratio.n_denominator) == (pytest.approx(1), 3, 3)
    assert "these repeats show" in " ".join(same.pairs[0].comparison.summary)
    other = compare_studies(tmp_path / "a", tmp_path / "b").pairs[0].comparison.speedup
    assert other is not None
    assert (other.n_numerator, other.n_denominator) == (3, 1)
