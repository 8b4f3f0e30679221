"""A study is predicted from calibrated files, then held against what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.calibration import STUDY, bench, experiment, keep, measured
from wirecost.breakdown import Source
from wirecost.calibration.saved import read
from wirecost.errors import SpecError
from wirecost.prediction.study import predict_study, read_predictions, write_predictions
from wirecost.prediction.study_validation import validate_study
from wirecost.spec import Study, to_yaml, validate
from wirecost.spec.presets import named
from wirecost.study.store import Outcome, Result, Status


def test_a_study_is_predicted_then_held_against_what_was_measured(folder: Path, tmp_path: Path) -> None:
    cells = predict_study(STUDY, read(folder))
    refused = [cell for cell in cells if cell.prediction is None]
    assert {cell.experiment.plan.name for cell in refused} == {"all-reduce-bf16"}
    assert all("bf16 was not calibrated" in (cell.refused or "") for cell in refused)
    codes = {
        cell.experiment.network.name: {w.code for w in cell.prediction.breakdown.diagnostics}
        for cell in cells
        if cell.prediction
    }
    assert {"uncalibrated_network", "not_benchmarked"} <= codes["emulated-1g"]
    assert not {"uncalibrated_network", "not_benchmarked"} & codes["emulated-100m"]
    write_predictions(cells, STUDY, {"calibration": str(folder)}, tmp_path / "p")
    with pytest.raises(SpecError, match="already"):
        write_predictions(cells, STUDY, {}, tmp_path / "p")
    said = read_predictions(tmp_path / "p")
    assert {b.source for b in said.values()} == {Source.PREDICTED}
    results = []
    for cell in cells:
        if cell.experiment.plan.precision == "fp32":
            # On the slow network the overlapping strategy is made slower than the other: an order to get wrong.
            slow = cell.experiment.plan.name == "ddp" and cell.experiment.network.name == "emulated-100m"
            breakdown = measured(cell.experiment, 2.0 if slow else 1.0)
            results.append(Result(cell.experiment, Outcome(status=Status.DONE), breakdown, tmp_path))
    other = experiment(4, 256, 4, 2, network=named("network", "emulated-300m"))
    results.append(Result(other, Outcome(status=Status.DONE), measured(other), tmp_path))
    held = validate_study(results, said)
    assert held.summary()["cells"] == 4
    wrong = {o.network: o.wrong_pairs for o in held.orders}
    assert wrong["emulated-100m"] == (("all-reduce", "ddp"),)
    assert held.pairs_right[0] == held.pairs_right[1] - 1
    assert [reason for _, reason in held.left_out] == ["measured, but not predicted"]
    cell = next(c for c in held.cells if c.plan == "all-reduce" and c.network == "emulated-100m")
    assert abs(cell.error) < 0.1
    assert cell.fraction_error is not None
    assert abs(cell.fraction_error) < 0.05
    assert json.loads(json.dumps(held.as_json()))["pairs"] == held.pairs_right[1]
    with pytest.raises(SpecError, match="no measured cell"):
        validate_study([], said)


def test_a_study_of_more_iterations_is_the_same_prediction(folder: Path, tmp_path: Path) -> None:
    cells = predict_study(STUDY, read(folder))
    said = {c.experiment.slug: c.prediction.breakdown for c in cells if c.prediction}
    longer = cells[0].experiment.model_copy(update={"iterations": 99})
    held = validate_study([Result(longer, Outcome(status=Status.DONE), measured(longer), tmp_path)], said)
    assert held.summary()["cells"] == 1


def test_one_rank_is_predicted_on_a_network_that_nothing_measured(folder: Path) -> None:
    settings = STUDY.model_dump(mode="json") | {"networks": ["shm"], "hosts": [1], "ranks_per_host": 1}
    cells = predict_study(validate(Study, settings, "alone"), read(folder))
    assert any(cell.prediction for cell in cells)
    assert not [cell.refused for cell in cells if cell.refused and "benchmarked" in cell.refused]


def test_a_study_of_commands_is_not_predicted(folder: Path) -> None:
    study = {"name": "mine", "workloads": [{"name": "job", "command": "python train.py"}], "networks": ["shm"]}
    with pytest.raises(SpecError, match="mine: has commands only"):
        predict_study(validate(Study, study, "mine"), read(folder))


def test_strategies_predicted_alike_have_no_order(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from wirecost.cli.show import show_study_validation

    cells = [c for c in predict_study(STUDY, read(folder)) if c.experiment.network.name == "emulated-100m"]
    (one, two) = (c.experiment for c in cells if c.prediction)
    alike = next(c.prediction.breakdown for c in cells if c.prediction)
    results = [
        Result(e, Outcome(status=Status.DONE), measured(e, factor), tmp_path)
        for e, factor in ((one, 2.0), (two, 1.0))
    ]
    held = validate_study(results, {one.slug: alike, two.slug: alike})
    (order,) = held.orders
    assert order.measured == (two.plan.name, one.plan.name)
    assert order.level == (order.predicted[1],)
    assert held.pairs_right == (0, 1)
    show_study_validation(held)
    assert "=" in capsys.readouterr().out


def test_the_commands_do_all_of_it(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from wirecost.cli import main

    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as ending:
            main([str(a) for a in arguments])
        assert not ending.value.code
        return capsys.readouterr().out

    study, mine, said = tmp_path / "study.yaml", tmp_path / "mine", tmp_path / "said"
    study.write_text(to_yaml(STUDY))
    said_of_fit = json.loads(
        run("calibrate", store, bench(tmp_path / "b.json", 2), "--out", mine, "--format", "json")
    )
    names = {Path(p).name for p in said_of_fit["wrote"]}
    assert names == {"calibration.yaml", "stack-fp32.yaml", "cluster-emulated-100m.yaml"}
    table = run("predict", "--study", study, "--calibration", mine, "--out", said)
    assert "predicted" in table
    assert "not_benchmarked" in table
    one = STUDY.model_experiments()[0]
    keep(tmp_path / "runs", one, measured(one))
    held = json.loads(run("validate", tmp_path / "runs", "--predictions", said, "--format", "json"))
    assert held["summary"]["cells"] == 1
    assert "measured" in run("validate", tmp_path / "runs", "--predictions", said)
    options = ("--calibration", mine, "--precision", "fp32", "--data-parallel", "all_reduce", "-n", "2")
    assert "emulated-100m" in run("predict", "gpt-tiny", *options)
    assert "Mb/s" in run("need", "gpt-tiny", *options, "-b", "4", "--fraction", "0.3")
