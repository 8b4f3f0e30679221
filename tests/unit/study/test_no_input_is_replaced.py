"""No output of a command replaces what it was made from."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from support.fuzzing.kinds import MEASURED
from support.fuzzing.oracle import run
from support.results import STUDY, invented_store
from wirecost.spec import Study, parse_yaml, validate
from wirecost.study import Store
from wirecost.study.store import StoreError

OWN_WORDS = f"# a comment\n{STUDY}"


@pytest.mark.parametrize("option", ["--html", "--figures"])
@pytest.mark.parametrize("place", ["study.yaml", "experiments", "experiments/new", ".lock", "link"])
def test_a_report_goes_to_none_of_the_results(tmp_path: Path, place: str, option: str) -> None:
    store = tmp_path / "store"
    invented_store(store)
    (store / "link").symlink_to("study.yaml")
    before = (store / "study.yaml").read_bytes()
    ending = run(["report", str(store), option, str(store / place)])
    assert ending.code == 2
    assert "belongs to the study's results; name another one to write" in ending.err
    assert ending.fault is None
    assert (store / "study.yaml").read_bytes() == before
    Store(store).check_output(store / "report.html")
    Store(store).check_output(tmp_path / "report.html")


def test_calibrated_values_do_not_replace_their_table(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    with table.open("w") as file:
        writer = csv.DictWriter(file, list(MEASURED))
        writer.writeheader()
        writer.writerows({**MEASURED, "id": f"r{n}", "mbs": str(2**n), "gbs": ""} for n in range(4))
    before = table.read_bytes()
    (tmp_path / "link.yaml").symlink_to(table)
    ending = run(["calibrate", str(table), "--folds", "0", "--save", str(tmp_path / "link.yaml")])
    assert ending.code == 2
    assert "is one of the measurements; name another file to write" in ending.err
    assert table.read_bytes() == before


def test_predictions_do_not_replace_the_study(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(OWN_WORDS)
    predict = ["predict", "--study", str(path), "--cluster", "dgx-h100", "--stack", "generic", "--out"]
    ending = run([*predict, str(tmp_path)])
    assert ending.code == 2
    assert "holds a study.yaml, which would be replaced: choose another --out" in ending.err
    assert path.read_text() == OWN_WORDS
    assert run([*predict, str(tmp_path / "predictions")]).code == 0


def test_a_study_beside_its_results_keeps_its_words(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(OWN_WORDS)
    study = validate(Study, parse_yaml(STUDY, "study"), "study")
    store = Store(tmp_path)
    store.check_study_file(study)
    with store.locked():
        store.save_study(study)
    assert path.read_text() == OWN_WORDS
    assert store.study() == study


def test_another_study_that_was_not_run_here_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    store = Store(tmp_path)
    study = validate(Study, parse_yaml(STUDY, "study"), "study")
    for text in (OWN_WORDS.replace("invented", "other"), "not: a study", "{"):
        path.write_text(text)
        with pytest.raises(StoreError, match=r"study\.yaml: is another study's, and none was run here"):
            store.check_study_file(study)
        assert path.read_text() == text
    # A store's study may change from run to run.
    store.experiments.mkdir()
    store.check_study_file(study)
    with store.locked():
        store.save_study(study)
    assert store.study() == study
