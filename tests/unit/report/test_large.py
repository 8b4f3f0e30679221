"""Reports of many experiments: an overview that says what it leaves out, parts on request, nothing done twice."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from support.counters import write_counters
from support.results import STUDY, invented_store
from wirecost.cli import application
from wirecost.errors import SpecError
from wirecost.report import StudyReport, read_report
from wirecost.report.data import to_csv
from wirecost.report.figures import charts_of, to_svg
from wirecost.report.over_time_figure import study_rows
from wirecost.report.overview import cross, deviating, dimensions, highest, speed_up_shares
from wirecost.report.page import MOST_ROWS, render_page
from wirecost.report.selection import select
from wirecost.report.terminal import print_report
from wirecost.report.terminal_overview import MOST_ROWS as MOST_LINES
from wirecost.spec import alike, parse_yaml
from wirecost.study import Status, study_file
from wirecost.study.store import Outcome

SIZES = "".join(
    f"  - {{name: size{n}, layers: {n}, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}}\n"
    for n in range(1, 8)
)
LARGE = (
    re.sub(r"  - \{name: small.*\n  - \{name: large.*\n", SIZES, STUDY)
    .replace("[emulated-100m, emulated-1g]", "[emulated-100m, emulated-1g, emulated-300m, emulated-2g]")
    .replace("[all-reduce]", "[all-reduce, ddp]")
)
FAILED = 30


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """224 experiments, of which 30 failed, each for a reason of its own."""
    folder = tmp_path_factory.mktemp("large")
    outcomes = {
        7 * n: Outcome(status=Status.FAILED, reason=f"rank 1: ValueError: {n}", traceback=f"<b>{n}</b>")
        for n in range(FAILED)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        invented_store(folder, text=LARGE, outcomes=outcomes)
    yield folder


@pytest.fixture(scope="module")
def report(root: Path) -> StudyReport:
    return read_report(root)


def shown(report: StudyReport, *, full: bool = False, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    print_report(report, console, full=full)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_reading_parses_each_text_and_expands_the_study_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, loaded = [], []
    monkeypatch.setattr(alike, "parse_yaml", lambda text, where: parsed.append(text) or parse_yaml(text, where))
    monkeypatch.setattr(
        study_file, "parse_yaml", lambda text, where: loaded.append(where) or parse_yaml(text, where)
    )
    assert len(read_report(root).cells) == 224
    assert len(parsed) == len(set(parsed)) < 100
    assert [Path(where).name for where in loaded] == ["study.yaml"]


def test_a_large_study_is_an_overview_that_says_how_to_see_the_rest(report: StudyReport) -> None:
    text = shown(report)
    assert report.is_large
    assert len(text.splitlines()) < 200
    assert max(map(len, text.splitlines()[:60])) <= 80
    for expected in ("224 experiments", "194 of 224", "--only network=NAME", "--all", "--format csv"):
        assert expected in text
    assert text.count("ValueError: ") == MOST_LINES
    assert "and 10 more reasons" in text
    full = shown(report, full=True)
    assert full.count("ValueError: ") == FAILED
    assert full.count("size7") > text.count("size7")
    assert "this is an overview" not in full


def test_shares_are_means_over_the_experiments(report: StudyReport) -> None:
    every, *rest = dimensions(report)
    assert [d.name for d in rest] == ["network", "plan", "scale", "workload"]
    medians = [c.comm_fraction.median for c in report.cells if c.comm_fraction]
    assert (every.shares[0].cells, every.shares[0].done) == (224, len(medians)) == (224, 194)
    assert every.shares[0].mean == pytest.approx(statistics.fmean(medians))
    for dimension in rest:
        assert sum(share.cells for share in dimension.shares) == 224
        assert sum(share.done for share in dimension.shares) == 194
    networks = rest[0].shares
    assert [s.name for s in networks] == list(report.networks)
    assert [s.mean for s in networks] == sorted(s.mean for s in networks if s.mean is not None)
    fractions = [c.comm_fraction.median for c in report.cells if c.network == "emulated-1g" and c.comm_fraction]
    one = next(s for s in networks if s.name == "emulated-1g")
    assert (one.mean, one.lowest, one.highest) == pytest.approx(
        (statistics.fmean(fractions), min(fractions), max(fractions))
    )


def test_networks_cross_plans(report: StudyReport) -> None:
    crossed = cross(report, 20, 20)
    assert crossed is not None
    assert (crossed.across, crossed.columns) == ("plan", ("all-reduce", "ddp"))
    assert [name for name, _ in crossed.rows] == list(report.networks)
    assert sum(share.cells for _, shares in crossed.rows for share in shares if share) == 224
    cut = cross(report, 3, 1)
    assert cut is not None
    assert (len(cut.rows), cut.more_rows, cut.columns, cut.more_columns) == (3, 1, ("all-reduce",), 1)
    of_one_plan = cross(select(report, ["plan=ddp"]), 20, 20)
    assert of_one_plan is not None
    assert of_one_plan.across == "scale"
    assert cross(select(report, ["network=emulated-1g"]), 20, 20) is None


def test_speed_ups_come_together_by_pair_of_networks(report: StudyReport) -> None:
    shares = speed_up_shares(report)
    assert sum(s.cells for s in shares) == len(report.speed_ups()) > 100
    first = shares[0]
    assert (first.fast, first.slow) == ("emulated-2g", "emulated-1g")
    ratios = [u.ratio for u in report.speed_ups() if (u.fast, u.slow) == (first.fast, first.slow)]
    assert first.mean == pytest.approx(statistics.geometric_mean(r.value for r in ratios))
    assert first.sure == sum(r.low > 1 for r in ratios)
    assert (first.lowest, first.highest) == (min(r.value for r in ratios), max(r.value for r in ratios))


def test_the_highest_come_first(report: StudyReport) -> None:
    top = highest(report, 10)
    assert len(top) == 10
    assert {cell.network for cell, _ in top} == {"emulated-100m"}
    assert [f.low for _, f in top] == sorted((f.low for _, f in top), reverse=True)
    assert deviating(report.expectations()) == []


def test_the_page_holds_every_fraction_and_little_else(report: StudyReport) -> None:
    page = render_page(report)
    everything = page[page.index("Every experiment, by plan") :]
    assert everything.count('class="n heat"') == 194
    assert page.count("<details>") == 2 + 1 + FAILED  # plans, speed-ups, tracebacks
    assert page.count("<svg") == 2
    assert len(page) < 400_000
    assert "&lt;b&gt;3&lt;/b&gt;" in page
    full = render_page(report, full=True)
    assert "<details>" not in full
    assert "Every experiment, by plan" not in full


def test_long_tables_of_the_page_are_cut_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    outcomes = {n: Outcome(status=Status.FAILED, reason=f"reason {n}") for n in range(0, 220)}
    invented_store(tmp_path, text=LARGE, outcomes=outcomes)
    page = render_page(read_report(tmp_path))
    assert page.count("failed: size") == MOST_ROWS == 100
    assert "and 120 more: --all shows all" in page


def test_figures_of_a_large_study_have_a_bounded_number_of_panels(report: StudyReport) -> None:
    charts = charts_of(report)
    assert set(charts) == {"breakdown", "comm_fraction"}
    for chart in charts.values():
        svg = to_svg(chart)
        assert len(svg) < 200_000
        assert "ddp" in svg
        assert "networks emulated on one machine" in svg
    values = charts["breakdown"].to_dict()["data"]["values"]
    assert len({(v["panel"], v["network"]) for v in values}) == 8
    for panel in ("all-reduce", "ddp"):
        for network in report.networks:
            shares = [v["share"] for v in values if (v["panel"], v["network"]) == (panel, network)]
            assert sum(shares) == pytest.approx(1)
    one_plan = charts_of(select(report, ["plan=ddp", "ranks=2"]))["breakdown"].to_dict()
    assert "row" in one_plan["facet"]  # a panel for each workload and scale, as ever


def test_the_network_over_time_is_drawn_for_a_few_runs_and_says_so(root: Path) -> None:
    report = read_report(root)
    counted = [c for c in report.cells if c.summary and c.scale.ranks == 4]
    for cell in counted:
        write_counters(cell.result.directory, [50, 5])
    rows, left_out = study_rows(report)
    assert 8 <= len(rows) <= 12
    assert all("all-reduce" in row.label for row in rows)
    assert left_out == "11 more pairs of workload and plan are not drawn"
    some, nothing = study_rows(select(report, ["workload=size1", "plan=ddp"]))
    assert 0 < len(some) <= 4
    assert nothing is None
    for cell in counted:
        (cell.result.directory / "counters.jsonl").unlink()


def test_a_part_of_a_study_is_what_its_conditions_say(report: StudyReport) -> None:
    part = select(report, ["network=emulated-1g", "network=emulated-2g", "plan=ddp", "ranks=4"])
    assert part.networks == ("emulated-2g", "emulated-1g")
    assert {(c.plan, c.scale.ranks) for c in part.cells} == {("ddp", 4)}
    assert len(part.cells) == 7 * 2 * 2
    assert not part.is_large
    assert "over emulated-1g" in shown(part, width=120)
    assert select(report, []) is report


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (["plan"], r"--only plan: should be KEY=VALUE, KEY one of workload, network"),
        (["speed=1"], r"should be KEY=VALUE"),
        (["plan="], r"should be KEY=VALUE"),
        (["plan=dpd"], r"unknown plan 'dpd' \(did you mean 'ddp'\?\)"),
        (["network=\x1b[31m"], r"unknown network '\\x1b\[31m'"),
    ],
)
def test_a_condition_that_nothing_meets_is_refused_in_one_line(
    report: StudyReport, conditions: list[str], message: str
) -> None:
    with pytest.raises(SpecError, match=message) as refusal:
        select(report, conditions)
    assert "\n" not in str(refusal.value)
    assert "\x1b" not in str(refusal.value)


def test_conditions_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    text = STUDY.replace("hosts: [2, 4]", "hosts: [2]").replace("micro_batch: 4", "micro_batch: 4, hosts: [4]")
    report = read_report(invented_store(tmp_path, text=text).root)
    with pytest.raises(SpecError, match="no cell of the study meets all"):
        select(report, ["scaling=weak", "ranks=2"])


def test_figures_are_made_only_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented_store(tmp_path / "store")
    drawn = []
    monkeypatch.setattr("wirecost.report.figures.charts_of", lambda report: drawn.append(report) or {})
    monkeypatch.setattr("wirecost.report.page.charts_of", lambda report: drawn.append(report) or {})
    run = CliRunner().invoke
    for options in ([], ["--all"], ["--format", "csv"], ["--format", "json"]):
        assert run(application("report"), ["report", str(tmp_path / "store"), *options]).exit_code == 0
    assert drawn == []
    assert not (tmp_path / "store" / "figures").exists()
    assert (
        run(
            application("report"), ["report", str(tmp_path / "store"), "--html", str(tmp_path / "page.html")]
        ).exit_code
        == 0
    )
    assert len(drawn) == 1
    assert (
        run(application("report"), ["report", str(tmp_path / "store"), "--figures", str(tmp_path / "f")]).exit_code
        == 0
    )
    assert len(drawn) == 2


def test_a_table_waits_for_no_chart_library(tmp_path: Path) -> None:
    invented_store(tmp_path)
    code = (
        "import sys; from wirecost.cli import main; sys.argv = ['wirecost', 'report', sys.argv[1]]\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code\n"
        "print(sorted({'altair', 'vl_convert', 'polars', 'jinja2', 'torch'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_a_row_for_each_experiment_whatever_their_number(report: StudyReport) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert len(rows) == 224
    assert sum(bool(row["comm_fraction"]) for row in rows) == 194


def test_more_scales_than_fit_stand_in_tables_below_each_other(tmp_path: Path) -> None:
    batches = ", ".join(f"{{kind: strong, global_batch: {16 * n}}}" for n in range(1, 11))
    text = re.sub(r"scaling: .*", f"scaling: [{batches}]", STUDY).replace("hosts: [2, 4]", "hosts: [2]")
    report = read_report(invented_store(tmp_path, text=text).root)
    lines = shown(report).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("continued" in line for line in lines)
    for batch in range(16, 161, 16):
        assert sum(f"<2, {batch}>" in line and "strong" not in line for line in lines) >= 1
    assert sum(line.split()[:2] == ["small", "emulated-1g"] for line in lines) >= 2
    assert json.loads(json.dumps(list(report.scales("ddp")))) == []
