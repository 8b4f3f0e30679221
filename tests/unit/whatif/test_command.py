"""The command and the Python function: the JSON, the formats, the files, the errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import wirecost
from support.ddp_traces import Job, write_job
from wirecost.cli import application
from wirecost.errors import WirecostError

SHARED_ANSWERS = (
    ("ddp-mb16-b25-nvlink", ["--network", "shm"], 238.2, 250.26, 0.03),
    ("ddp-mb16-b25-nvlink", ["--network", "emulated-20g"], 238.2, 700.65, 0.03),
    ("ddp-mb16-b25-nvlink", ["--bucket-mib", "1"], 238.2, 238.53, 0.03),
    ("ddp-mb16-b25-emulated-20g", ["--network", "nvlink"], 700.65, 238.2, 0.05),
    ("ddp-mb16-b25-nvlink-slow", ["--without-straggler"], 278.37, 238.2, 0.05),
)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(application("whatif"), ["whatif", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_job(tmp_path / "traces", Job())


def test_json_holds_the_replay_and_the_answers(traces: Path) -> None:
    found = json.loads(run(str(traces), "--scale-communication", "2", "--bucket-mib", "8", "--format", "json"))
    assert found["replay"]["iteration_ms"] == pytest.approx(4.32, abs=0.01)
    assert abs(found["replay"]["error"]) < 0.01
    assert len(found["answers"]) == 3  # both together, then each alone
    for answer in found["answers"]:
        assert {"question", "iteration_ms", "low_ms", "high_ms", "bound_by", "comm_fraction"} <= answer.keys()


@pytest.mark.parametrize("format", ["text", "csv", "markdown", "latex"])
def test_every_format_prints_the_answer(traces: Path, format: str) -> None:
    text = run(str(traces), "--scale-communication", "2", "--format", format)
    assert text.strip()
    if format == "text":
        first = text.splitlines()[0]
        assert first.startswith("communication 2 times as fast: from 4.3 ms to 4.2 ms")
        assert "bound by the device" in first
    if format == "csv":
        assert text.startswith("question,iteration_ms,low_ms,high_ms,bound_by,comm_fraction")


def test_timelines_page_and_chart_are_written(traces: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("t.json.gz", "p.html", "c.json")]
    run(str(traces), "--scale-communication", "2", "--perfetto", str(files[0]), "--html", str(files[1]),
        "--sweep", "1 Gb/s:100 Gb/s", "--chart", str(files[2]))  # fmt: skip
    events = json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {f"rank {r} {when} (replayed)" for r in (0, 1) for when in ("before", "after")}
    assert "Replayed iteration after" in files[1].read_text()
    assert json.loads(files[2].read_text())


def test_a_trace_is_never_written_over(traces: Path) -> None:
    with pytest.raises(WirecostError, match="is one of the traces"):
        wirecost.what_if(traces).write_perfetto(traces / "rank0.json")


def test_a_link_is_written_through_and_not_replaced(traces: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "events.json")
    wirecost.what_if(traces).write_perfetto(link)
    assert link.is_symlink() and json.loads((tmp_path / "events.json").read_bytes())["traceEvents"]


def test_contradicting_options_are_refused(traces: Path) -> None:
    for options, words in (
        ({"network": "dgx-h100", "bandwidth": "1 Gb/s"}, "not both"),
        ({"latency": "1 us"}, "belongs to a stated network"),
        ({"bandwidth": "fast"}, "--bandwidth"),
        ({"step_time": "0 ms"}, "takes longer"),
    ):
        with pytest.raises(WirecostError, match=words):
            wirecost.what_if(traces, **options)  # pyright: ignore[reportArgumentType]


def test_the_view_has_tables_and_a_chart(traces: Path) -> None:
    view = wirecost.what_if(traces, scale_communication=2)
    assert view.iteration_ms == pytest.approx(4.22, abs=0.01)
    assert view.to_polars("breakdown").height == 5
    assert view.chart() is not None


@pytest.mark.parametrize(("network", "bound_by"), [("emulated-60m", "network"), ("8xv100-10g", "device")])
def test_networks_of_devices_without_bf16_are_known(traces: Path, network: str, bound_by: str) -> None:
    results = Path(__file__).parents[3] / "results" / "2026-11-28-two-cores-studies"
    options = ["--network", network, "--calibration", str(results / "calibration"), "--format", "json"]
    (answer,) = json.loads(run(str(traces), *options))["answers"]
    assert answer["question"] == f"network {network}"
    assert answer["bound_by"] == bound_by
    assert answer["low_ms"] <= answer["high_ms"]


@pytest.mark.needs_shared
@pytest.mark.parametrize(("trace", "options", "plain_ms", "answer_ms", "limit"), SHARED_ANSWERS)
def test_measured_answers_are_met(
    shared: Path, trace: str, options: list[str], plain_ms: float, answer_ms: float, limit: float
) -> None:
    calibration = str(shared / "reference" / "two-h200")
    folder = str(shared / "traces" / "h200-gpt-2-medium" / trace)
    found = json.loads(
        run(folder, *options, "--calibration", calibration, "--step-time", f"{plain_ms} ms", "--format", "json")
    )
    assert abs(found["replay"]["error"]) < 0.01
    assert found["answers"][0]["iteration_ms"] == pytest.approx(answer_ms, rel=limit)
