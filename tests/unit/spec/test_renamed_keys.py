"""Keys under the names that they had before are accepted."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from support.studies import STUDY
from wirecost.errors import DeprecatedWarning, SpecError
from wirecost.spec import Experiment, Study, validate
from wirecost.spec.yaml import parse_yaml


def test_a_study_with_fabrics_is_the_study_with_networks_and_warns() -> None:
    data = parse_yaml(STUDY, "study")
    before = {"fabrics" if key == "networks" else key: value for key, value in data.items()}
    with pytest.warns(DeprecatedWarning, match="the key 'fabrics' is deprecated: write 'networks'"):
        old = validate(Study, before, "study")
    assert old == validate(Study, data, "study")
    with pytest.raises(SpecError, match="unknown key 'fabrics'"):
        validate(Study, data | before, "study")


def test_an_experiment_that_was_stored_before_is_read_without_a_word_and_keeps_its_name() -> None:
    (experiment,) = validate(Study, parse_yaml(STUDY, "study"), "study").experiments()
    data = experiment.model_dump(mode="json")
    data["fabric"] = data.pop("network")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = validate(Experiment, data, "experiment")
    assert before == experiment
    assert before.slug == "nano_capped_all-reduce_strong_2x1_b4_f13e7eeccb"


def test_the_command_line_prints_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from wirecost.cli import main

    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace("networks:", "fabrics:"))
    with pytest.raises(SystemExit) as ending:
        main(["study", "run", str(path), "--dry-run"])
    printed = capsys.readouterr()
    assert ending.value.code == 0
    first, second = printed.err.splitlines()
    assert first == "wirecost: the key 'fabrics' is deprecated: write 'networks'"
    assert second.startswith("1 experiment, roughly ")
    assert printed.out.startswith("nano_capped_")
