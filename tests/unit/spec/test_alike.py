"""Specifications that have text in common are parsed in parts, and read as if they were parsed whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.results import STUDY
from wirecost.errors import SpecError
from wirecost.spec import Experiment, Study, alike, load, parse_yaml, to_yaml, validate
from wirecost.spec.alike import AlikeSpecs

EXPERIMENTS = validate(Study, parse_yaml(STUDY, "s"), "s").experiments()
INSERTED = [
    '"', "'", "\n", "\n\n", "# x\n", " #", "&a ", "*a", "|\n", ">\n", "|+\n\n", "- ", "---\n", "...\n", "? ", "\r",
    "\u2028", "\x85", "\t", "{", "}", "[", "]", ",", ":", " ", "!!str ", "<<: ", "\ufeff", "seed: 3\n",
    'seed: "1\n', "x: 1\n", "\x00", "~", "workload: {}\n", '"x": 1\n', "seed:1\n", '\nhosts: 2"\n', "é", "",
]  # fmt: skip


def write(path: Path, text: str) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
    return path


def parsed_by(specs: AlikeSpecs[Experiment], path: Path) -> Experiment:
    return specs.parse(path.read_text(encoding="utf-8"), str(path))


def outcome(read: object, path: Path) -> object:
    assert callable(read)
    try:
        return read(path)
    except SpecError as error:
        return str(error)


def test_each_part_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    monkeypatch.setattr(alike, "parse_yaml", lambda text, where: parsed.append(text) or parse_yaml(text, where))
    specs = AlikeSpecs(Experiment)
    for number, experiment in enumerate(EXPERIMENTS):
        path = write(tmp_path / f"{number}.yaml", to_yaml(experiment))
        read = parsed_by(specs, path)
        assert read == experiment == load(Experiment, path)
        assert read.slug == experiment.slug
    assert len(EXPERIMENTS) == 16
    assert len(parsed) == len(set(parsed))
    assert sum(text.startswith("name:") for text in parsed) == 5  # of workloads, the plan, networks
    assert sum(text.startswith("layers:") for text in parsed) == 2
    assert all(text.count("\n") == 1 for text in parsed)


def test_what_they_share_is_one_object(tmp_path: Path) -> None:
    specs = AlikeSpecs(Experiment)
    first, second = (parsed_by(specs, write(tmp_path / str(n), to_yaml(EXPERIMENTS[n]))) for n in (0, 1))
    assert first.workload is second.workload
    assert first.network is not second.network


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_files_are_read_or_refused_as_if_parsed_whole(tmp_path: Path, data: st.DataObject) -> None:
    text = to_yaml(data.draw(st.sampled_from(EXPERIMENTS)))
    specs = AlikeSpecs(Experiment)
    parsed_by(specs, write(tmp_path / "e.yaml", text))
    for _ in range(data.draw(st.integers(1, 2))):
        lines = [place + 1 for place, character in enumerate(text) if character == "\n"] or [0]
        start = data.draw(st.integers(0, len(text)) | st.sampled_from(lines))
        end = start + data.draw(st.sampled_from([0, 0, 1, 12]))
        text = text[:start] + data.draw(st.sampled_from(INSERTED)) + text[end:]
    path = write(tmp_path / "e.yaml", text)
    assert outcome(lambda p: parsed_by(specs, p), path) == outcome(lambda p: load(Experiment, p), path)


@pytest.mark.parametrize("line_break", ["\r", "\x85", "\u2028", "\u2029"])
def test_each_line_break_of_yaml_ends_a_line(tmp_path: Path, line_break: str) -> None:
    text = to_yaml(EXPERIMENTS[0])
    specs = AlikeSpecs(Experiment)
    parsed_by(specs, write(tmp_path / "e.yaml", text))
    by_parts, whole = [], []
    for place in range(0, len(text), 7):
        path = write(tmp_path / "e.yaml", text[:place] + line_break + text[place + 12 :])
        by_parts.append(outcome(lambda p: parsed_by(specs, p), path))
        whole.append(outcome(lambda p: load(Experiment, p), path))
    assert by_parts == whole
    assert len(whole) > 50


def test_aliases_between_parts_are_followed(tmp_path: Path) -> None:
    text = to_yaml(EXPERIMENTS[0]).replace("hosts: 2", "hosts: &n 2").replace("warmup: 2", "warmup: *n")
    path = write(tmp_path / "e.yaml", text)
    assert parsed_by(AlikeSpecs(Experiment), path) == load(Experiment, path)


def test_what_cannot_be_read_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    specs = AlikeSpecs(Experiment)
    contents = (b"", b"x: 1\n" * 300_000, b"a: [1,\n", b"seed: 1\nseed: 2\n")
    refused = 0
    for number, content in enumerate(contents):
        path = tmp_path / f"{number}.yaml"
        path.write_bytes(content)
        with pytest.raises(SpecError) as refusal:
            parsed_by(specs, path)
        assert str(refusal.value) == outcome(lambda p: load(Experiment, p), path)
        assert str(refusal.value).startswith(str(path))
        refused += 1
    assert refused == 4


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "MOST_KEPT", 20)
    monkeypatch.setattr(alike, "LONGEST_KEPT", 400)
    specs = AlikeSpecs(Experiment)
    for seed in range(50):
        experiment = EXPERIMENTS[0].model_copy(update={"seed": seed})
        path = write(tmp_path / "e.yaml", to_yaml(experiment))
        assert parsed_by(specs, path).seed == seed
        kept = [*specs._parts, *specs._plain]
        assert 0 < len(kept) <= 40
        assert all(len(block) <= 400 for block in kept)
