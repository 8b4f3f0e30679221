"""`wirecost compare` on traces, experiments and studies: what is compared, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from support.results import STUDY, invented_store
from support.timelines import COMM_STREAM, Timeline
from wirecost.cli import application
from wirecost.comparison.studies import compare_studies
from wirecost.errors import WirecostError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(application(), ["compare", *map(str, arguments)])


def compared(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--format", "json")
    assert done.exit_code == 0, done.output + str(done.exception)
    return json.loads(done.stdout)


def refused(*arguments: object) -> str:
    """What a refusal says: wirecost's own errors leave with exit code 2."""
    error = run(*arguments).exception
    assert isinstance(error, WirecostError), error
    assert WirecostError.exit_code == 2
    return str(error)


def job(folder: Path, step_us: float) -> Path:
    """Ten steps whose backward runs on a second thread, so that GPU annotations cover a tenth of each step."""
    folder.mkdir()
    t = Timeline(0)
    for k in range(10):
        at = 1000 + k * step_us
        t.step(k, at, step_us)
        t.device(at + 20, step_us / 10, launched=at + 5)
        t.device(at + 20 + step_us / 10, step_us * 0.8, launched=at + 12, thread=1000)
        t.gpu_annotation(f"ProfilerStep#{k}", at + 20, step_us / 10)
    t.write(folder)
    return folder


def untold(folder: Path, at: float) -> Path:
    """A recording without iterations: a compute kernel and a collective."""
    folder.mkdir()
    t = Timeline(0)
    t.device(at, 300)
    t.device(at + 300, 100, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream=COMM_STREAM)
    t.write(folder)
    return folder


def test_the_defaults_are_those_of_trace(tmp_path: Path) -> None:
    found = compared(job(tmp_path / "a", 1000), job(tmp_path / "b", 500))
    assert (found["before_iteration_ns"], found["after_iteration_ns"]) == (1_000_000, 500_000)
    assert found["speedup"]["value"] == 2


def test_windows_that_are_parts_of_iterations_are_refused(tmp_path: Path) -> None:
    folder = job(tmp_path / "a", 1000)
    said = refused(folder, folder, "--window", "gpu")
    assert "the first: the windows of rank 0 cover only 1" in said and "parts of iterations" in said


def test_a_window_by_name_is_taken(tmp_path: Path) -> None:
    folder = job(tmp_path / "a", 1000)
    assert compared(folder, folder, "--window", "cpu")["before_iteration_ns"] == 1_000_000
    assert "window" in refused(folder, folder, "--window", "sideways")


def test_recorded_windows_are_compared_by_shares_alone(tmp_path: Path) -> None:
    found = compared(untold(tmp_path / "a", 10), untold(tmp_path / "b", 20))
    assert found["speedup"] is None
    assert found["before_iteration_ns"] is None
    (said,) = found["summary"]
    assert "only shares of the time can be compared" in said and "either side" in said
    exposed = next(p for p in found["parts"] if p["part"] == "exposed_comm_ns")
    assert exposed["before_share"] == pytest.approx(0.25)
    mixed = compared(untold(tmp_path / "c", 10), job(tmp_path / "d", 500))
    assert "the recording of the first" in mixed["summary"][-1]


def test_two_experiments_are_compared_by_their_measurement(tmp_path: Path) -> None:
    invented_store(tmp_path / "s")
    experiments = sorted((tmp_path / "s" / "experiments").iterdir())
    for e in experiments:
        (e / "traces").mkdir()
        (e / "traces" / "rank-0.json.gz").write_text("a trace that is not to be read")
    found = compared(experiments[0], experiments[1])
    assert found["before_source"] == found["after_source"] == "measured"
    assert found["before_title"] == experiments[0].name


def test_an_experiment_without_result_is_refused(tmp_path: Path) -> None:
    invented_store(tmp_path / "s")
    first = sorted((tmp_path / "s" / "experiments").iterdir())[0]
    (first / "breakdown.json").unlink()
    assert "breakdown.json is missing; run it again" in refused(first, first)
    (first / "status.json").unlink()
    assert "did not finish" in refused(first, first)


def test_two_studies_are_compared_experiment_by_experiment(tmp_path: Path) -> None:
    invented_store(tmp_path / "a")
    invented_store(tmp_path / "b")
    found = compared(tmp_path / "a", tmp_path / "b")
    assert len(found["pairs"]) == 2 * 2 * 2 * 2
    assert found["differing"] == {}
    assert found["only_before"] == found["only_after"] == []
    shown = run(tmp_path / "a", tmp_path / "b").output
    assert shown.count("No difference") == 16


def test_studies_that_differ_in_one_value_are_compared_across_it(tmp_path: Path) -> None:
    invented_store(tmp_path / "a", text=STUDY.replace("[emulated-100m, emulated-1g]", "[emulated-100m]"))
    invented_store(tmp_path / "b", text=STUDY.replace("[emulated-100m, emulated-1g]", "[emulated-1g]"))
    found = compare_studies(tmp_path / "a", tmp_path / "b")
    assert found.differing == {"network": ("emulated-100m", "emulated-1g")}
    assert len(found.pairs) == 8
    for pair in found.pairs:
        assert pair.comparison.speedup is not None and pair.comparison.speedup.value > 1
    assert "differ in network: emulated-100m and emulated-1g" in run(tmp_path / "a", tmp_path / "b").output


def test_what_one_study_alone_holds_is_named(tmp_path: Path) -> None:
    invented_store(tmp_path / "a")
    invented_store(tmp_path / "b", text=STUDY.replace("hosts: [2, 4]", "hosts: [2, 8]"))
    found = compare_studies(tmp_path / "a", tmp_path / "b")
    assert len(found.pairs) == len(found.only_before) == len(found.only_after) == 8
    assert "Only the first holds" in run(tmp_path / "a", tmp_path / "b").output


def test_a_study_is_not_compared_with_something_else(tmp_path: Path) -> None:
    invented_store(tmp_path / "a")
    assert "is a study but" in refused(tmp_path / "a", job(tmp_path / "b", 500))
    assert "is a study but" in refused(tmp_path / "b", tmp_path / "a")


def test_studies_without_a_common_experiment_are_refused(tmp_path: Path) -> None:
    invented_store(tmp_path / "a", text=STUDY)
    invented_store(tmp_path / "b", text=STUDY.replace("[2, 4]", "[8, 16]"))
    with pytest.raises(WirecostError, match="no experiment in common"):
        compare_studies(tmp_path / "a", tmp_path / "b")
