"""A study's experiments, predicted from the traces of another one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.ddp_traces import Job, write_job
from support.results import invented_store
from wirecost.api.whatif import what_if
from wirecost.cli import application
from wirecost.errors import WirecostError
from wirecost.report import read_report
from wirecost.report.data import to_json
from wirecost.report.page import render_page
from wirecost.spec import Study, validate
from wirecost.study.loading import PROFILED_ITERATIONS, profiled
from wirecost.study.manifest import write_manifest
from wirecost.whatif.validation import validate_replays

STUDY = """\
name: asked
workloads: [{name: small, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}]
networks: [emulated-100m, emulated-1g]
plans:
  - {name: ddp, data_parallel: ddp, bucket_bytes: 4194304}
  - {name: large, data_parallel: ddp, bucket_bytes: 16777216}
  - {name: other, data_parallel: zero2}
hosts: [2]
scaling: [{kind: weak, micro_batch: 4}]
"""
TRANSFERS_MS = 4 * (1 << 22) * 8 / 100e6 * 1e3
"""Four gradients of 4 MiB over 100 Mb/s."""


def keep_traces(root: Path, name: str, job: Job) -> None:
    (directory,) = (root / "experiments").glob(f"{name}*")
    folder = write_job(root / "job", job)
    (directory / "traces").mkdir()
    for rank in range(job.ranks):
        text = (folder / f"rank{rank}.json").read_bytes()
        (directory / "traces" / f"rank-{rank}.json.gz").write_bytes(gzip.compress(text))
    write_manifest(directory, directory.name)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    invented_store(root, text=STUDY)
    keep_traces(root, "small_emulated-1g_ddp_", Job(steps=4))
    return root


def test_every_cell_that_differs_in_network_or_buckets_is_predicted(study: Path) -> None:
    rows = read_report(study).what_ifs
    assert {(w.base.network, w.base.plan) for w in rows} == {("emulated-1g", "ddp")}
    assert {(w.cell.network, w.cell.plan) for w in rows} == {
        ("emulated-100m", "ddp"), ("emulated-1g", "large"), ("emulated-100m", "large"),
    }  # fmt: skip
    (other,) = [w for w in rows if (w.cell.network, w.cell.plan) == ("emulated-100m", "ddp")]
    assert other.predicted_ms is not None
    assert other.predicted_ms == pytest.approx(TRANSFERS_MS, rel=0.01)
    assert other.error == pytest.approx(other.predicted_ms / other.measured_ms - 1)


def test_the_json_and_the_page_hold_the_predictions(study: Path) -> None:
    report = read_report(study)
    rows = json.loads(to_json(report))["what_if"]
    assert len(rows) == 3 and all(row["from_network"] == "emulated-1g" for row in rows)
    assert "What-if answers from other experiments" in render_page(report)


def test_a_study_folder_is_asked_about_its_other_experiments(study: Path) -> None:
    view = what_if(study)
    assert len(view.answers) == 3
    assert all(a.question in view.measured_ms for a in view.answers)
    (one,) = what_if(study, network="emulated-100m").answers
    assert one.iteration_ms == pytest.approx(TRANSFERS_MS, rel=0.01)
    printed = CliRunner().invoke(application(), ["whatif", str(study), "--network", "emulated-100m"]).output
    assert "the study measured" in printed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"experiment": "smal_"}, "smal_"),
        ({"experiment": "small_emulated-100m_ddp"}, "--profile"),
        ({"network": "emulated-10m"}, "emulated-10m"),
        ({"network": "emulated-1gb"}, "did you mean 'emulated-1g'"),
    ],
)
def test_what_a_study_does_not_hold_is_said(study: Path, options: dict, words: str) -> None:
    with pytest.raises(WirecostError, match=words):
        what_if(study, **options)


def test_of_experiments_over_several_networks_the_fastest_is_asked(tmp_path: Path) -> None:
    invented_store(tmp_path, text=STUDY)
    for name in ("small_emulated-1g_ddp_", "small_emulated-100m_ddp_"):
        keep_traces(tmp_path, name, Job(steps=3))
    view = what_if(tmp_path)
    assert view.experiment is not None and view.experiment.startswith("small_emulated-1g_ddp_")
    assert f"The traces are those of {view.experiment}." in view.lines()
    assert view.to_dict()["experiment"] == view.experiment
    assert "network emulated-100m" in {a.question for a in view.answers}


def test_profiled_experiments_that_differ_in_more_must_be_named(tmp_path: Path) -> None:
    invented_store(tmp_path, text=STUDY)
    for name in ("small_emulated-1g_ddp_", "small_emulated-100m_other_"):
        keep_traces(tmp_path, name, Job(steps=3))
    with pytest.raises(WirecostError, match="--experiment: small_emulated-100m"):
        what_if(tmp_path)


def test_traces_that_cannot_be_replayed_leave_the_report_whole(tmp_path: Path) -> None:
    invented_store(tmp_path, text=STUDY)
    keep_traces(tmp_path, "small_emulated-1g_ddp_", Job(steps=3))
    (broken,) = tmp_path.glob("experiments/small_emulated-1g_ddp_*/traces/rank-1.json.gz")
    broken.write_bytes(b"{}")
    write_manifest(broken.parent.parent, broken.parent.parent.name)
    rows = read_report(tmp_path).what_ifs
    assert rows and all("rank-1.json.gz" in (w.unknown or "") for w in rows)
    assert {w.verdict for w in rows} == {"unknown"}


def test_profile_sets_the_iterations_of_every_experiment() -> None:
    study = validate(
        Study,
        {"name": "s", "workloads": ["gpt-tiny"], "networks": ["emulated-1g"], "plans": ["ddp"],
         "scaling": [{"kind": "weak", "micro_batch": 1}]},
        "s",
    )  # fmt: skip
    assert {e.profile_iterations for e in profiled(study).experiments()} == {PROFILED_ITERATIONS}
    kept = study.model_copy(update={"profile_iterations": 7})
    assert profiled(kept).profile_iterations == 7


def test_a_calibration_knows_networks_that_no_benchmark_measured(tmp_path: Path) -> None:
    invented_store(tmp_path, text=STUDY.replace("emulated-100m", "emulated-60m"))
    keep_traces(tmp_path, "small_emulated-1g_ddp_", Job(steps=4))
    calibration = Path(__file__).parents[3] / "results" / "2026-11-28-two-cores-studies" / "calibration"
    nominal = what_if(tmp_path, network="emulated-60m").answers[0]
    calibrated = what_if(tmp_path, network="emulated-60m", calibration=calibration).answers[0]
    assert nominal.high_ms < calibrated.low_ms
    row, *_ = validate_replays(tmp_path, calibration).rows
    assert (row.question, row.low_s) == ("network emulated-60m", pytest.approx(calibrated.low_ms * 1e-3))


def test_experiments_on_one_host_ask_about_no_emulated_network(tmp_path: Path) -> None:
    invented_store(tmp_path, text=STUDY.replace("hosts: [2]", "hosts: [1x2]"))
    keep_traces(tmp_path, "small_emulated-1g_ddp_", Job(steps=4))
    with pytest.raises(WirecostError, match="no nominal rate tells what emulated-100m would do to it; ask with"):
        what_if(tmp_path)
    left_out = dict(validate_replays(tmp_path).left_out)
    (reason,) = (reason for name, reason in left_out.items() if name.startswith("small_emulated-1g_ddp_"))
    assert reason == "no benchmark and no nominal rate tells what emulated-100m would do to it"
