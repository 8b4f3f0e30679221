"""The index gives the same report as the results, and never one of results that have changed since."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.results import STUDY, invented_store
from wirecost.cli import application
from wirecost.report import read_report
from wirecost.report.data import to_json
from wirecost.study import Status, Store
from wirecost.study.index import INDEX, Index, stamp_of
from wirecost.study.manifest import MANIFEST
from wirecost.study.result import SummaryReader
from wirecost.study.state import State, read_state
from wirecost.study.store import Outcome, StoreError

OUTCOMES = {
    1: Outcome(
        status=Status.FAILED, reason="it fell over", traceback="Traceback", log_tail=("a", "b"), seconds=2.0
    ),
    2: Outcome(status=Status.OOM, reason="rank 0: out of memory"),
}


def reported(root: Path) -> str:
    return to_json(read_report(root))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the names of the results that were read from their own files."""
    names: list[str] = []
    read = SummaryReader.read

    def counted(self: SummaryReader, directory: Path, name: str) -> object:
        names.append(name)
        return read(self, directory, name)

    monkeypatch.setattr(SummaryReader, "read", counted)
    return names


def test_a_report_from_the_index_is_the_same_and_reads_no_result(tmp_path: Path, reads: list[str]) -> None:
    invented_store(tmp_path, outcomes=OUTCOMES)
    first = reported(tmp_path)
    assert len(reads) == 16
    reads.clear()
    assert reported(tmp_path) == first
    assert reads == []
    assert Store(tmp_path).summaries() == Store(tmp_path).summaries()


def test_a_result_that_was_replaced_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    store = invented_store(tmp_path)
    reported(tmp_path)
    reads.clear()
    experiment = store.study().experiments()[3]
    with store.locked():
        store.begin(experiment)
        store.publish(experiment, Outcome(status=Status.FAILED, reason="it fell over"), None)
    assert [row["status"] for row in json.loads(reported(tmp_path))["experiments"]].count("failed") == 1
    assert reads == [experiment.slug]


def test_a_result_that_was_damaged_later_is_left_out(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    reported(tmp_path)
    victim = store.experiments / store.study().experiments()[0].slug
    text = (victim / "breakdown.json").read_text()
    (victim / "breakdown.json").write_text(text.replace("4", "5", 1))
    assert [d.code for d in read_report(tmp_path).left_out] == ["damaged_result"]


def test_damage_that_changes_no_time_is_found_by_the_check(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    reported(tmp_path)
    victim = store.experiments / store.study().experiments()[0].slug / "breakdown.json"
    before = victim.stat()
    victim.write_bytes(victim.read_bytes()[::-1])
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(read_report(tmp_path).cells) == 16
    shown = CliRunner().invoke(application(), ["study", "check", str(tmp_path)])
    assert shown.exit_code == 1
    assert "15 results are whole, 1 damaged" in shown.output
    assert len(read_report(tmp_path).cells) == 15


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]\n", '{"format_version":2}\n{}', '{"format_version":1}\n{"name":3}', "\0\0"]
)
def test_an_index_that_cannot_be_used_is_made_again(tmp_path: Path, reads: list[str], content: str) -> None:
    invented_store(tmp_path)
    first = reported(tmp_path)
    (tmp_path / INDEX).write_text(content)
    reads.clear()
    assert reported(tmp_path) == first
    assert len(reads) == 16
    reads.clear()
    assert reported(tmp_path) == first
    assert reads == []


def test_an_index_that_is_a_folder_is_ignored(tmp_path: Path) -> None:
    invented_store(tmp_path)
    (tmp_path / INDEX).mkdir()
    assert len(read_report(tmp_path).cells) == 16
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(f".{INDEX}")]


def test_status_completes_the_index_and_reads_it(tmp_path: Path, reads: list[str]) -> None:
    store = invented_store(tmp_path, outcomes=OUTCOMES)
    first = read_state(tmp_path)
    assert first.count(State.FAILED, State.OOM) == 2
    index = Index(tmp_path)
    for experiment in store.study().experiments():
        entry = index.find(experiment.slug, stamp_of(store.experiments / experiment.slug))
        assert entry is not None and not entry.summarised
    assert read_state(tmp_path) == first
    # A report needs more than the outcomes.
    assert len(read_report(tmp_path).cells) == 16
    assert len(reads) == 16


def test_results_that_are_gone_leave_the_index(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    reported(tmp_path)
    experiment = store.study().experiments()[0]
    with store.locked():
        store.forget(experiment)
    reported(tmp_path)
    assert experiment.slug not in (tmp_path / INDEX).read_text()


def test_a_report_does_not_replace_the_index(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    with pytest.raises(StoreError, match="belongs to the study's results"):
        store.check_output(tmp_path / INDEX)


def test_results_of_earlier_versions_are_read_and_get_manifests(tmp_path: Path) -> None:
    store = invented_store(tmp_path, text=STUDY.replace("[2, 4]", "[2]"))
    for directory in store.experiments.iterdir():
        (directory / MANIFEST).unlink()
        status = json.loads((directory / "status.json").read_text()) | {"format_version": 1}
        (directory / "status.json").write_text(json.dumps(status))
    before = reported(tmp_path)
    shown = CliRunner().invoke(application(), ["study", "check", str(tmp_path), "--upgrade"])
    assert shown.exit_code == 0
    assert "8 of them had no record of their files and have one now" in shown.output
    assert all((directory / MANIFEST).exists() for directory in store.experiments.iterdir())
    assert reported(tmp_path) == before
    again = CliRunner().invoke(application(), ["study", "check", str(tmp_path), "--upgrade"])
    assert "0 of them had no record" in again.output
