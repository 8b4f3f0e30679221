"""Tests where a study's files are looked for, and what a dry run prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wirecost.cli import main
from wirecost.study.loading import load_study

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 128,
}
STUDY = """
name: mine
workloads: [WORKLOAD]
networks: [loopback]
plans: [ddp]
hosts: [1]
ranks_per_host: 2
scaling: [{kind: strong, global_batch: 4}]
"""


def write(folder: Path, workload: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(STUDY.replace("WORKLOAD", workload))
    return folder / "study.yaml"


@pytest.mark.parametrize("workload", ["models/config.json", "{config: models/config.json, sequence_length: 64}"])
def test_a_config_is_taken_from_the_folder_of_the_study(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "studies", workload)
    (tmp_path / "studies/models").mkdir()
    (tmp_path / "studies/models/config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    (loaded,) = load_study(str(path)).models
    assert (loaded.layers, loaded.hidden) == (2, 64)


def test_a_config_in_the_working_directory_is_still_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "studies", "config.json")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    with pytest.warns(FutureWarning, match="from the folder of the study's file"):
        (loaded,) = load_study(str(path)).models
    assert loaded.layers == 2


def test_family_llama(tmp_path: Path) -> None:
    sizes = "layers: 2, hidden: 64, heads: 4, vocab_size: 512, sequence_length: 64"
    path = write(tmp_path, f"{{name: small, family: llama, {sizes}, tied_embeddings: true}}")
    (loaded,) = load_study(str(path)).models
    assert (loaded.norm, loaded.positions, loaded.activation) == ("rmsnorm", "rotary", "swiglu")
    assert loaded.tied_embeddings
    assert not loaded.biases


def test_a_dry_run_says_how_many_how_long_and_what_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "gpt-tiny")
    path.write_text(path.read_text() + "device: cuda\n")
    with pytest.raises(SystemExit) as ending:
        main(["study", "run", str(path), "--dry-run"])
    out, err = capsys.readouterr()
    assert ending.value.code == 0
    assert out.count("\n") == 1
    assert "1 experiment, roughly" in err
    assert "can't run here: mine: device cuda needs a GPU for each rank: 2" in err
