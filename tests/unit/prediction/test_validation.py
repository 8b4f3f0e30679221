"""`validate`: one place for tables and studies."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.calibration import STUDY, keep, measured
from support.model import ROW
from wirecost.breakdown import Source
from wirecost.errors import SpecError
from wirecost.prediction.study import predict_study, write_predictions
from wirecost.prediction.study_validation import StudyValidation
from wirecost.prediction.table_validation import TableValidation
from wirecost.prediction.validation import Options, validate
from wirecost.spec import load_spec, to_yaml


def table(path: Path) -> Path:
    path.write_text(",".join(ROW) + "\n" + ",".join(ROW.values()) + "\n")
    return path


def store(root: Path) -> Path:
    first = STUDY.model_experiments()[0]
    keep(root, first, measured(first))
    (root / "study.yaml").write_text(to_yaml(STUDY))
    return root


def test_a_table_and_a_study_are_validated_by_one_function(tmp_path: Path) -> None:
    of_table = validate(table(tmp_path / "t.csv"))
    assert isinstance(of_table, TableValidation)
    (row,) = of_table.rows
    assert row.low is not None
    assert row.predicted is not None
    assert row.low < row.predicted
    predicted = predict_study(STUDY, cluster=load_spec("cluster", "selene"))
    write_predictions(predicted, STUDY, {}, tmp_path / "said")
    of_study = validate(store(tmp_path / "runs"), Options(predictions=tmp_path / "said"))
    assert isinstance(of_study, StudyValidation)
    assert of_study.summary()["cells"] == 1
    assert {p.prediction.breakdown.source for p in predicted if p.prediction} == {Source.PREDICTED}


def test_options_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    rows, runs = table(tmp_path / "t.csv"), store(tmp_path / "runs")
    with pytest.raises(SpecError, match="for tables"):
        validate(runs, Options(calibrate_on=rows, predictions=tmp_path))
    with pytest.raises(SpecError, match="--predictions DIR"):
        validate(runs)
    with pytest.raises(SpecError, match="for a study's results directory"):
        validate(rows, Options(predictions=tmp_path))
    with pytest.raises(SpecError, match="no such directory"):
        validate(tmp_path / "nowhere", Options(calibration=tmp_path))
    with pytest.raises(SpecError, match="no such file"):
        validate(tmp_path / "nowhere.csv")


def test_links_that_a_row_does_not_name_are_listed_as_assumed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    row = {**ROW, "intra_link": "", "inter_link": "", "inter_gbit_s_per_node": "", "gpus_per_node": ""}
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    result = validate(path)
    assert isinstance(result, TableValidation)
    assumed = result.rows[0].assumed
    assert assumed["intra_link"] == "nvlink3"
    assert assumed["inter_link"] == "infiniband-hdr"
    assert assumed["gpus_per_node"] == 8
    assert assumed["inter_gbit_s_per_node"] == pytest.approx(1600)
