"""What can't be calibrated on is refused, with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.calibration import bench, experiment, keep, measured
from wirecost.breakdown import Source
from wirecost.calibration.calibrate import calibrate
from wirecost.calibration.inputs.gather import Inputs, gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.saved import read
from wirecost.errors import SpecError, WirecostError


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cores", 0),
        ("cores", 1 << 20),
        ("cores", "2"),
        ("cores", True),
        ("memory_bytes", -1),
        ("gpus", "A100"),
        ("gpus", [1]),
        ("processor", 7),
    ],
)
def test_an_environment_that_cannot_be_is_named(tmp_path: Path, key: str, value: object) -> None:
    run = experiment(4, 256, 4)
    directory = keep(tmp_path / "one", run, measured(run))
    path = directory / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(SpecError, match=rf"environment\.json: {key}") as refusal:
        gather([directory], TraceOptions())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("request", "hosts"), 0),
        (("request", "hosts"), 1e9),
        (("request", "ranks_per_host"), True),
        (("request", "groups"), []),
        (("network", "name"), "../x"),
        (("network", "emulated"), "no"),
        (("network", "nominal_rate_bps"), 1e30),
    ],
)
def test_a_benchmark_that_cannot_be_is_named(tmp_path: Path, place: tuple[str, str], value: object) -> None:
    path = bench(tmp_path / "n.json", 2)
    data = json.loads(path.read_text())
    record, key = place
    data[record] = (data.get(record) or {}) | {key: value}
    path.write_text(json.dumps(data))
    with pytest.raises(SpecError, match=rf"n\.json: no sound benchmark: {record}\.{key}") as refusal:
        gather([path], TraceOptions())
    assert "\n" not in str(refusal.value)


def test_what_cannot_be_calibrated_on_is_refused(store: Path, tmp_path: Path) -> None:
    one = experiment(4, 256, 4)
    alone = tmp_path / "b.json"
    alone.write_text(measured(one).model_dump_json())
    with pytest.raises(SpecError, match="what ran"):
        gather([alone], TraceOptions())
    imported = measured(one).model_copy(update={"source": Source.IMPORTED})
    alone.write_text(imported.model_dump_json())
    with pytest.raises(SpecError, match="--workload"):
        gather([alone], TraceOptions())
    alone.write_text(imported.model_copy(update={"source": Source.PREDICTED}).model_dump_json())
    with pytest.raises(SpecError, match="prediction"):
        gather([alone], TraceOptions())
    with pytest.raises(WirecostError):
        gather([tmp_path / "nothing"], TraceOptions())
    with pytest.raises(SpecError, match="nothing to calibrate on"):
        calibrate(Inputs())
    with pytest.raises(SpecError, match="tells nothing about compute"):
        calibrate(gather([bench(tmp_path / "n.json", 2)], TraceOptions()))
    with pytest.raises(SpecError, match="no sound benchmark"):
        gather([bench(tmp_path / "n.json", 2, rows=[{"size": 1}])], TraceOptions())
    with pytest.raises(SpecError, match="no calibration"):
        read(tmp_path)
    unfinished = keep(tmp_path / "u", one, measured(one))
    (unfinished / "breakdown.json").unlink()
    with pytest.raises(SpecError, match="did not finish"):
        gather([unfinished], TraceOptions())
    found = gather([store], TraceOptions())
    found.runs.append(replace(found.runs[0], device="Another"))
    with pytest.raises(SpecError, match="different devices"):
        calibrate(found)


STUDY_YAML = "workloads: [gpt-tiny]\nplans: [ddp]\nnetworks: [loopback]\nhosts: [1]\n"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("study.yaml", STUDY_YAML, "is a study, not its results: give the folder that `wirecost study run"),
        ("study.yml", STUDY_YAML, "is a study, not its results"),
        ("mine.yaml", "format_version: 2\nvalues: {}\n", "is a calibration"),
        ("stack.yaml", "hidden_bytes: 3\n", "is a specification, not a measurement"),
        ("broken.yaml", "a: [1\n", "broken.yaml:2:1"),
        ("train.log", "step 1, loss 8.1\n", "is no measurement: expected a study's results"),
        ("results.csv", "workload,network,plan,iteration_ms\na,b,c,1\n", "give the study's folder"),
        ("other.csv", "a,b\n1,2\n", "no table of measurements"),
    ],
)
def test_a_file_that_is_no_measurement_is_named_for_what_it_is(
    tmp_path: Path, name: str, text: str, wanted: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SpecError, match=wanted) as refusal:
        calibrate(gather([path], TraceOptions()))
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([], "is empty: expected a study's results"),
        (["calibration.yaml"], "is a calibration"),
        (["stack-bf16.yaml", "cluster-nvlink.yaml"], "is a calibration"),
        (["study.yaml"], "the study has no finished run"),
        (["experiments/.lock"], "the study has no finished run"),
        (["one/experiments/x", "two/experiments/x"], "give one of them: one, two"),
        (["first/experiment.yaml"], "give the study's folder above it"),
        (["notes.txt"], "no traces in this directory"),
    ],
)
def test_a_folder_that_is_no_measurement_is_named_for_what_it_is(
    tmp_path: Path, files: list[str], wanted: str
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    with pytest.raises(WirecostError, match=wanted) as refusal:
        calibrate(gather([folder], TraceOptions()))
    assert str(folder) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_command_refuses_a_study_with_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from wirecost.cli import main

    (tmp_path / "study.yaml").write_text(STUDY_YAML)
    with pytest.raises(SystemExit) as ending:
        main(["calibrate", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "mine")])
    assert ending.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "mine").exists()
