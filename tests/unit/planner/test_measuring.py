"""Commands of the user that train the plans of a search."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.planning import answered
from wirecost.errors import SpecError
from wirecost.planner.measuring import NUMBERS, Measuring, flags_of, job_of

VALUES = {**{name: str(number) for number, name in enumerate(NUMBERS)}, "flags": "--a 1 --b", "file": "/x/plan"}


@given(st.lists(st.sampled_from(NUMBERS), max_size=4), st.text("abc-={}: ", max_size=8))
def test_only_names_between_braces_are_replaced(names: list[str], around: str) -> None:
    if "{" in around or "}" in around:
        around = around.replace("{", "").replace("}", "")
    words = ["program", *(f"{around}={{{name}}}" for name in names)]
    arguments = Measuring(command=shlex.join(words)).arguments(VALUES)
    assert arguments == ["program", *(f"{around}={VALUES[name]}" for name in names)]


def test_other_braces_are_kept_and_flags_are_arguments() -> None:
    how = Measuring(command="train '{\"a\": 1}' {flags} --config={file} {}", target="megatron")
    assert how.arguments(VALUES) == ["train", '{"a": 1}', "--a", "1", "--b", "--config=/x/plan", "{}"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"command": "train {pt}"}, "unknown placeholder 'pt'"),
        ({"command": "train {flags}"}, "{flags} needs --emit"),
        ({"command": "train {file}"}, "{file} needs --emit"),
        ({"command": "train 'x"}, "can't be split into arguments"),
        ({"command": " "}, "names no program"),
        ({"command": "train", "place": SimpleNamespace()}, "runs on this machine"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        Measuring(**options)


def test_flags_are_what_follows_the_script() -> None:
    text = "# a plan\ntorchrun --nnodes=2 train.py \\\n    --tp 2 \\\n    --name 'a b'\n"
    assert flags_of(text) == ["--tp", "2", "--name", "a b"]
    assert flags_of('{\n  "stage": 3\n}\n') == []


def test_each_plan_has_its_numbers_and_its_file(tmp_path: Path) -> None:
    answer = answered("gpt-2-medium", "dgx-h100", 8, 32, stacks=("megatron-core",))
    how = Measuring(command="train --tp {tp} --mb {mb} {flags} {file}", target="megatron")
    choice = answer.found.choice(0)
    job = job_of(answer, 0, how, tmp_path)
    assert job["command"][:5] == ["train", "--tp", str(choice.tp), "--mb", str(choice.mb)]
    assert "--tensor-model-parallel-size" in job["command"]
    assert Path(job["command"][-1]).read_text().startswith("# ")
