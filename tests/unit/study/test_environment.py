from __future__ import annotations

import json
from pathlib import Path

import pytest

from wirecost.study.environment import _gpus, describe_environment


def test_secrets_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    described = describe_environment()
    assert "hunter2" not in json.dumps(described)
    assert described["variables"]["NCCL_DEBUG"] == "INFO"
    assert described["python"]


def test_gpus_as_the_driver_names_them(tmp_path: Path) -> None:
    assert _gpus(tmp_path / "none") == []
    for name, text in (("0000:01:00.0", "Model: \t\t NVIDIA H200\nIRQ: 9\n"), ("0000:02:00.0", "IRQ: 9\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text(text)
    assert _gpus(tmp_path) == ["NVIDIA H200", "unknown"]
