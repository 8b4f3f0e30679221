"""The report on invented results: layout, arithmetic, labels, escaping."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from support.counters import SECOND, write_counters, write_events
from support.results import COMPUTE_MS, STUDY, invented_store, replace_breakdown
from wirecost.counters.monitor import read_recording
from wirecost.counters.parquet import ParquetWriter
from wirecost.errors import WirecostError
from wirecost.report import read_report
from wirecost.report.data import to_csv, to_json
from wirecost.report.figures import write_figures
from wirecost.report.over_time_figure import pause_labels, write_recording_figure
from wirecost.report.page import render_page
from wirecost.report.terminal import print_report
from wirecost.study import Status
from wirecost.study.manifest import write_manifest
from wirecost.study.store import DamagedResultWarning, Outcome, StoreError

ALL_REDUCE_MS = {(2, "emulated-1g"): 8 / 0.99, (4, "emulated-1g"): 12 / 0.99, (2, "emulated-100m"): 80 / 0.99}


def shown(root: Path) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False, force_terminal=True, color_system=None)
    print_report(read_report(root), console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_fractions_stand_where_the_reference_study_has_them(tmp_path: Path) -> None:
    invented_store(tmp_path)
    report = read_report(tmp_path)
    assert report.networks == ("emulated-1g", "emulated-100m")  # the fastest first
    assert [str(s) for s in report.scales("all-reduce")] == ["<2, 16>", "<4, 16>", "<2, 8>", "<4, 16>"]
    for (ranks, network), comm_ms in ALL_REDUCE_MS.items():
        scale = next(s for s in report.scales("all-reduce") if s.ranks == ranks)
        cell = report.cell("small", network, "all-reduce", scale)
        assert cell is not None
        assert cell.comm_fraction is not None
        assert cell.comm_fraction.median == pytest.approx(comm_ms / (COMPUTE_MS + comm_ms), rel=1e-3)
    lines = shown(tmp_path).splitlines()
    header = next(i for i, line in enumerate(lines) if line.split()[:2] == ["workload", "network"])
    assert lines[header - 1].split() == ["strong", "strong", "weak", "weak"]
    row = next(line for line in lines if "small" in line and "emulated-100m" in line)
    assert row.split()[2] == "0.67"


def test_one_batch_in_other_micro_batches_is_a_column_of_its_own(tmp_path: Path) -> None:
    both = "global_batch: 16}, {kind: strong, global_batch: 16, micro_batch: 2}"
    store = invented_store(tmp_path, text=STUDY.replace("global_batch: 16}", both))
    report = read_report(tmp_path)
    assert len(report.cells) == len(store.results()) == 24
    found = [
        report.cell(w, n, "all-reduce", s)
        for w in report.workloads
        for n in report.networks
        for s in report.scales("all-reduce")
    ]
    assert {c.result.directory for c in found if c} == {c.result.directory for c in report.cells}
    assert len(report.speed_ups()) == 12
    assert "<2, 16> in 4 micro-batches" in [str(s) for s in report.scales("all-reduce")]


def test_speed_ups_have_their_n_and_spread(tmp_path: Path) -> None:
    invented_store(tmp_path)
    ups = read_report(tmp_path).speed_ups()
    assert len(ups) == 2 * 4
    assert {(u.fast, u.slow) for u in ups} == {("emulated-1g", "emulated-100m")}
    assert ups[0].ratio.value == pytest.approx((40 + 80 / 0.99) / (40 + 8 / 0.99), rel=1e-3)
    assert ups[0].ratio.low <= ups[0].ratio.value <= ups[0].ratio.high
    assert (ups[0].ratio.n_numerator, ups[0].ratio.n_denominator) == (4, 4)


def test_where_the_fastest_network_has_no_result_the_table_says_which_is_compared(tmp_path: Path) -> None:
    three = STUDY.replace("emulated-100m", "emulated-100m, emulated-300m")
    invented_store(tmp_path, text=three, outcomes={2: Outcome(status=Status.SKIPPED, reason="too fast")})
    report = read_report(tmp_path)
    assert report.networks == ("emulated-1g", "emulated-300m", "emulated-100m")
    table = shown(tmp_path).split("Speed-up of")[1].split("Expected from")[0]
    rows = [line.split() for line in table.splitlines() if line.startswith(" small") or line.startswith("small")]
    assert [row[4] for row in rows] == ["emulated-300m", "emulated-1g", "emulated-1g", "emulated-1g"]


def test_communication_that_is_not_what_bytes_and_rate_say_is_pointed_out(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    assert all(e.holds for e in read_report(tmp_path).expectations())
    first = next(p for p in sorted(store.experiments.iterdir()))
    path = first / "breakdown.json"
    data = json.loads(path.read_text())
    for collective in data["collectives"]:
        collective["transfer_median_ns"] = round(collective["transfer_median_ns"] * 1.16)
    replace_breakdown(first, data)
    broken = [e for e in read_report(tmp_path).expectations() if not e.holds]
    assert [e.deviation for e in broken] == [pytest.approx(0.16, abs=0.001)]
    assert "15 of 16 runs within 15%" in shown(tmp_path)


def test_what_did_not_finish_is_shown_with_its_reason(tmp_path: Path) -> None:
    outcomes = {
        0: Outcome(status=Status.OOM, reason="rank 0: OutOfMemoryError: too big"),
        1: Outcome(
            status=Status.FAILED, reason="rank 1: ValueError: [bold]x[/bold]\x1b[31m", traceback="<b>trace</b>"
        ),
        2: Outcome(status=Status.SKIPPED, reason="too fast"),
    }
    invented_store(tmp_path, outcomes=outcomes)
    text = shown(tmp_path)
    for expected in ("OOM", "failed", "skipped", "OutOfMemoryError: too big", "too fast", "[bold]x[/bold]"):
        assert expected in text
    assert "\x1b[31m" not in text
    page = render_page(read_report(tmp_path))
    assert "<b>trace</b>" not in page
    assert "&lt;b&gt;trace&lt;/b&gt;" in page


def test_a_network_without_a_result_keeps_its_rate_and_its_label(tmp_path: Path) -> None:
    slow = "{name: slow, emulate: {rate: 40 Mb/s}}"
    failed = {n: Outcome(status=Status.FAILED, reason="no") for n in range(0, 16, 2)}
    invented_store(tmp_path, outcomes=failed, text=STUDY.replace("emulated-100m", slow))
    report = read_report(tmp_path)
    assert [(link.network, link.nominal, link.slowest_bps) for link in report.links()] == [
        ("emulated-1g", "1 Gb/s", pytest.approx(0.99e9)),
        ("slow", "40 Mb/s", None),
    ]
    assert report.network_label("slow") == "slow (emulated)"
    row = next(line for line in shown(tmp_path).splitlines() if "slow (emulated)" in line and "unknown" in line)
    assert "uncapped" not in row
    assert "uncapped" not in render_page(report)


def test_names_from_a_store_are_data(tmp_path: Path) -> None:
    store = invented_store(
        tmp_path, outcomes={0: Outcome(status=Status.FAILED, reason="<script>alert(1)</script>")}
    )
    environment = next(iter(sorted(store.experiments.iterdir()))) / "environment.json"
    environment.write_text(json.dumps({"cores": "<img src=x onerror=alert(2)>", "packages": {}}))
    page = render_page(read_report(tmp_path))
    assert "<script" not in page
    assert "<img" not in page
    assert "ranks &lt;share&gt; cores" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/", "")


def test_json_and_csv_say_the_same(tmp_path: Path) -> None:
    invented_store(tmp_path, outcomes={3: Outcome(status=Status.OOM)})
    report = read_report(tmp_path)
    data = json.loads(to_json(report))
    table = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert data["format_version"] == 2
    assert len(data["experiments"]) == len(table) == 16
    for one, other in zip(data["experiments"], table, strict=True):
        assert one["status"] == other["status"]
        if one["comm_fraction"] is None:
            assert other["comm_fraction"] == ""
        else:
            assert float(other["comm_fraction"]) == pytest.approx(one["comm_fraction"])
            assert one["forward_ms"] == 15
            assert one["tokens_per_s"] == pytest.approx(one["global_batch"] * 32 / (one["iteration_ms"] / 1e3))
            assert one["emulated"] is True


def test_figures_are_pictures(tmp_path: Path) -> None:
    invented_store(tmp_path)
    paths = write_figures(read_report(tmp_path), tmp_path / "figures")
    assert [p.name for p in paths] == ["breakdown.png", "breakdown.svg", "comm_fraction.png", "comm_fraction.svg"]
    for path in paths:
        start = path.read_bytes()[:8]
        assert start == b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else start.startswith(b"<svg")
    assert "gradient sync" in paths[1].read_text()


def test_names_of_pauses_do_not_overlap() -> None:
    pauses = [
        {"s": 1.0, "end": 2.0, "what": "checkpoint"}, {"s": 50.0, "end": 51.0, "what": "validation"},
        {"s": 52.0, "end": 53.0, "what": "checkpoint"}, {"s": 54.0, "end": 55.0, "what": "checkpoint"},
        {"s": 90.0, "end": 91.0, "what": "validation"},
    ]  # fmt: skip
    assert pause_labels(pauses, 100.0) == {
        ("left", 0): [{"s": 1.0, "what": "checkpoint"}],
        ("left", 1): [{"s": 50.0, "what": "validation, checkpoint"}],
        ("right", 0): [{"s": 91.0, "what": "validation"}],
    }
    assert pause_labels([], 1.0) == {}


def test_the_network_over_time_is_drawn_where_it_was_counted(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    counted = next(r for r in store.results() if r.experiment.ranks == 4)
    write_counters(counted.directory, [50, 5, 5, 0, 5, 5])
    write_events(counted.directory, 0, ("checkpoint", 3, 3 * SECOND, 4 * SECOND))
    names = [p.name for p in write_figures(read_report(tmp_path), tmp_path / "figures")]
    assert names[4:] == ["network_over_time.png", "network_over_time.svg"]
    for picture in ((tmp_path / "figures" / names[-1]).read_text(), render_page(read_report(tmp_path))):
        assert "host0 (ethernet)" in picture
        assert "checkpoint" in picture
        assert f"on {counted.experiment.network.name}" in picture


def test_use_of_the_link_beside_its_measured_rate(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    assert "Link use" not in shown(tmp_path)
    (path,) = [r.directory / "breakdown.json" for r in store.results()][:1]
    data = json.loads(path.read_text())
    data["network"] |= {"mean_use_bps": 0.2 * data["network"]["measured_rate_bps"], "peak_use_bps": 1e7}
    replace_breakdown(path.parent, data)
    network = data["network"]["name"]
    rate = data["network"]["measured_rate_bps"]
    line = next(x for x in shown(tmp_path).splitlines() if x.startswith("Link use"))
    assert line.startswith(f"Link use during iterations, {network}: mean ")
    assert line.endswith(f"(20%), peak 10 Mb/s ({1e7 / rate:.0%})")
    row = next(
        r for r in json.loads(to_json(read_report(tmp_path)))["experiments"] if r["mean_use_Gbps"] is not None
    )
    assert (row["network"], row["peak_use_Gbps"]) == (network, 0.01)


def test_a_recording_of_the_monitor_has_the_same_figure(tmp_path: Path) -> None:
    write_counters(tmp_path, [5, 0, 5])
    written = write_recording_figure(tmp_path / "counters.jsonl", tmp_path)
    assert [p.name for p in written] == ["counters.png", "counters.svg"]
    assert "host1 (ethernet)" in written[1].read_text()
    table = ParquetWriter(tmp_path / "same.parquet")
    table.write(read_recording(tmp_path / "counters.jsonl"))
    table.close()
    assert read_recording(tmp_path / "same.parquet") == read_recording(tmp_path / "counters.jsonl")
    (tmp_path / "idle.jsonl").write_text("")
    with pytest.raises(WirecostError, match=r"idle\.jsonl: no device in it moved a MiB"):
        write_recording_figure(tmp_path / "idle.jsonl", tmp_path)
    for name in ("junk.parquet", "junk.jsonl", "junk.txt"):
        (tmp_path / name).write_text("junk\n")
        with pytest.raises(WirecostError, match="junk") as error:
            write_recording_figure(tmp_path / name, tmp_path)
        assert "\n" not in str(error.value)


def test_damaged_results_are_left_out_and_named(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    victims = sorted(store.experiments.iterdir())[:2]
    for victim in victims:
        (victim / "breakdown.json").write_text('{"schema_version": 3}')
    report = read_report(tmp_path)
    assert len(report.cells) == 14
    names = {victim.name for victim in victims}
    assert names.isdisjoint(c.result.directory.name for c in report.cells)
    damaged = [row.diagnostic for row in report.diagnostics() if "damaged_result" in row.diagnostic.code]
    assert {d.subject for d in damaged} == names
    assert all(d.message.startswith("left out: breakdown.json has 21 bytes") for d in damaged)
    assert all("--resume --repair" in (d.remedy or "") for d in damaged)
    for text in (shown(tmp_path), render_page(report), to_json(report)):
        assert all(name in text for name in names)


def test_many_damaged_results_are_counted(tmp_path: Path) -> None:
    store = invented_store(tmp_path, text=STUDY.replace("hosts: [2, 4]", "hosts: [2, 4, 8, 16]"))
    whole = len(store.results())
    for victim in sorted(store.experiments.iterdir())[:-1]:
        (victim / "status.json").unlink()
    damaged = [
        row.diagnostic for row in read_report(tmp_path).diagnostics() if "damaged_result" in row.diagnostic.code
    ]
    assert (whole, len(damaged)) == (32, 21)
    assert (damaged[-1].message, damaged[-1].count) == ("left out: 11 more", 11)


def test_a_store_of_damaged_results_alone_is_one_clear_line(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    for victim in store.experiments.iterdir():
        (victim / "manifest.json").unlink()
    with pytest.raises(StoreError, match=r"none of its results can be used: 16 are damaged, first ") as error:
        read_report(tmp_path)
    assert "manifest.json is missing" in str(error.value)
    assert "--resume --repair" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_study_leaves_the_results_in_the_order_of_their_names(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    (tmp_path / "study.yaml").write_text("name: [")
    report = read_report(tmp_path)
    names = [c.result.directory.name for c in report.cells]
    assert names == sorted(p.name for p in store.experiments.iterdir())
    assert any(
        "study.yaml" in row.diagnostic.message
        for row in report.diagnostics()
        if row.diagnostic.code == "study_unreadable"
    )


@pytest.mark.parametrize("content", ["", "[1]", '{"packages": [1]}', "[" * 100_000])
def test_a_broken_environment_breaks_no_report(tmp_path: Path, content: str) -> None:
    store = invented_store(tmp_path)
    paths = [r.directory / "environment.json" for r in store.results()]
    assert len(paths) == 16
    for path in paths:
        path.write_text(content)
        write_manifest(path.parent, path.parent.name)
    report = read_report(tmp_path)
    assert report.environment == {}
    assert len(report.cells) == 16
    paths[3].write_text('{"packages": {"torch": "2"}}')
    write_manifest(paths[3].parent, paths[3].parent.name)
    assert read_report(tmp_path).environment == {"packages": {"torch": "2"}}


def test_results_of_a_study_before_it_was_edited_are_not_mixed_in(tmp_path: Path) -> None:
    invented_store(tmp_path)
    store = invented_store(tmp_path, text=STUDY + "iterations: 5\n")
    assert len(store.results()) == 32
    report = read_report(tmp_path)
    assert {c.result.experiment.iterations for c in report.cells} == {5}
    assert len(report.cells) == len(report.expectations()) == 16
    assert ("earlier_study", 16) in [(row.diagnostic.code, row.experiments) for row in report.diagnostics()]


def test_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    with pytest.raises(StoreError, match="no experiment has finished here yet"):
        read_report(tmp_path)


def test_the_study_decides_the_order(tmp_path: Path) -> None:
    invented_store(tmp_path)
    names = [c.workload for c in read_report(tmp_path).cells]
    assert names == [w for _ in range(2) for w in ["small"] * 4 + ["large"] * 4]
    assert STUDY.index("small") < STUDY.index("large")


def test_counters_that_cannot_be_read_are_not_drawn(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    counted = next(r for r in store.results() if r.experiment.ranks == 4)
    write_counters(counted.directory, [50, 5, 5, 0, 5, 5])
    (counted.directory / "counters.jsonl").write_text("junk\njunk\n")
    with pytest.warns(DamagedResultWarning, match=r"not drawn: .*counters\.jsonl' line 1 is not a sample"):
        names = [p.name for p in write_figures(read_report(tmp_path), tmp_path / "figures")]
    assert names == ["breakdown.png", "breakdown.svg", "comm_fraction.png", "comm_fraction.svg"]
