"""Whatever happens to a result's files: it is noticed, named, left out, and brings down nothing else."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from support.results import STUDY, invented_store
from wirecost.cli import application
from wirecost.report import read_report
from wirecost.report.data import to_json
from wirecost.spec import Study, parse_yaml, validate
from wirecost.study import Result, Store
from wirecost.study import store as store_module
from wirecost.study.manifest import MANIFEST, Manifest, read_regular, write_manifest
from wirecost.study.result import read_result

SMALL = STUDY.replace("hosts: [2, 4]", "hosts: [2]").replace("emulated-100m, emulated-1g", "emulated-1g")
EXTRA = {
    "samples/rank-0.jsonl": '{"warmup": false, "start_ns": 0, "end_ns": 5}\n' * 20,
    "logs/cell.log": "",
    "counters.jsonl": '{"t_ns": 1, "unix_ns": 1, "kind": "ethernet", "device": "host0", "rx_bytes": 0, "tx_bytes": 0}\n',
}


def store_with_files(root: Path, *, with_manifest: bool = True) -> Store:
    """Four results, each with raw files too. Without a manifest they are as earlier versions left them."""
    shutil.copytree(template(with_manifest), root, dirs_exist_ok=True)
    return Store(root)


@cache
def template(with_manifest: bool) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="wirecost-test-")
    atexit.register(folder.cleanup)
    store = invented_store(Path(folder.name), text=SMALL)
    directories = list(store.experiments.iterdir())
    assert len(directories) == 4
    for number, directory in enumerate(directories):
        for name, text in EXTRA.items():
            (directory / name).write_text(text * (number + 1))
        write_manifest(directory, directory.name)
        if not with_manifest:
            (directory / MANIFEST).unlink()
            status = json.loads((directory / "status.json").read_bytes())
            del status["format_version"]
            (directory / "status.json").write_text(json.dumps(status))
    assert not store.contents(every_byte=True).damaged
    return store.root


def truncate(path: Path, other: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def lengthen(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def empty(path: Path, other: Path) -> None:
    path.write_bytes(b"")


def make_huge(path: Path, other: Path) -> None:
    os.truncate(path, 20 << 30)


def swap(path: Path, other: Path) -> None:
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def delete(path: Path, other: Path) -> None:
    path.unlink()


def directory_instead(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


def fifo_instead(path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_loop_instead(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def endless_device_instead(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


MUTATIONS: list[Callable[[Path, Path], None]] = [
    truncate, lengthen, empty, make_huge, swap, delete, directory_instead, fifo_instead, link_loop_instead,
    endless_device_instead,
]  # fmt: skip
FILES = ("breakdown.json", "environment.json", "experiment.yaml", "manifest.json", "status.json", *EXTRA)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_noticed_and_only_its_result_is_left_out(
    tmp_path: Path, name: str, mutate: Callable[[Path, Path], None]
) -> None:
    store = store_with_files(tmp_path)
    victim, other, *_ = sorted(store.experiments.iterdir())
    before = (victim / name).read_bytes()
    mutate(victim / name, other / name)
    unchanged = (victim / name).is_file() and (victim / name).stat().st_size < 1 << 20
    if unchanged and (victim / name).read_bytes() == before:
        return  # it had this content before
    if name == MANIFEST and mutate is lengthen:
        assert not store.contents(every_byte=True).damaged  # white space
        return
    contents = store.contents(every_byte=True)
    named = {d.name for d in contents.damaged}
    assert named == ({victim.name, other.name} if mutate is swap else {victim.name})
    assert all("\n" not in d.reason and d.reason for d in contents.damaged)
    assert len(contents.results) == 4 - len(named)
    report = json.loads(to_json(read_report(tmp_path)))
    assert len(report["experiments"]) >= 4 - len(named)
    # What changes a file's size is noticed by what only looks.
    if mutate is not swap:
        assert len(report["experiments"]) == 3
        assert any(victim.name in w["message"] for w in report["warnings"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_changed_byte_is_noticed(tmp_path: Path, data: st.DataObject) -> None:
    root = tmp_path / "store"
    if not root.exists():
        store_with_files(root)
    store = Store(root)
    victim = min(store.experiments.iterdir())
    name = data.draw(st.sampled_from([f for f in FILES if f != "logs/cell.log"]))
    before = (victim / name).read_bytes()
    place = data.draw(st.integers(0, len(before) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != before[place]))
    (victim / name).write_bytes(before[:place] + bytes([value]) + before[place + 1 :])
    try:
        contents = store.contents(every_byte=True)
        white = name == MANIFEST and json_value(before) == json_value((victim / name).read_bytes())
        assert [d.name for d in contents.damaged] == ([] if white else [victim.name])
        assert len(read_report(root).cells) >= 3
    finally:
        (victim / name).write_bytes(before)


def json_value(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", [f for f in FILES if f != MANIFEST])
def test_what_earlier_versions_left_is_read_and_checked_as_far_as_it_can_be(
    tmp_path: Path, name: str, mutate: Callable[[Path, Path], None]
) -> None:
    store = store_with_files(tmp_path, with_manifest=False)
    victim, other, *_ = sorted(store.experiments.iterdir())
    mutate(victim / name, other / name)
    for contents in (store.contents(), store.contents(every_byte=True)):
        assert {d.name for d in contents.damaged} <= {victim.name, other.name}
        assert len(contents.results) + len(contents.damaged) == 4
        unlike = mutate not in (lengthen, truncate, empty, make_huge, swap, delete)
        if unlike or (name in ("breakdown.json", "experiment.yaml") and mutate is not lengthen):
            assert victim.name in {d.name for d in contents.damaged}
    assert len(read_report(tmp_path).cells) >= 2


def test_a_breakdown_of_another_experiment_is_noticed_in_stores_of_every_version(tmp_path: Path) -> None:
    for with_manifest in (True, False):
        store = store_with_files(tmp_path / str(with_manifest), with_manifest=with_manifest)
        victim, other, *_ = sorted(store.experiments.iterdir())
        shutil.copy(other / "breakdown.json", victim / "breakdown.json")
        (damaged,) = store.contents().damaged
        assert damaged.name == victim.name
        assert with_manifest or damaged.reason == f"breakdown.json is of another experiment ({other.name})"


def test_a_result_under_another_name_is_foreign(tmp_path: Path) -> None:
    for with_manifest in (True, False):
        store = store_with_files(tmp_path / str(with_manifest), with_manifest=with_manifest)
        victim, other, *_ = sorted(store.experiments.iterdir())
        shutil.rmtree(victim)
        shutil.copytree(other, victim)
        (damaged,) = store.contents().damaged
        assert damaged.name == victim.name
        assert f"of another experiment ({other.name})" in damaged.reason


def test_a_result_of_a_later_version_is_said_to_be_one_that_cannot_be_read(tmp_path: Path) -> None:
    store = store_with_files(tmp_path)
    for number, (name, key) in enumerate(
        (("status.json", "format_version"), ("breakdown.json", "schema_version"))
    ):
        directory = sorted(store.experiments.iterdir())[number]
        data = json.loads((directory / name).read_bytes())
        (directory / name).write_text(json.dumps(data | {key: 77}))
        write_manifest(directory, directory.name)
    reasons = [d.reason for d in store.contents().damaged]
    assert len(reasons) == 2
    assert all("_version: Input should be" in reason for reason in reasons)


def test_a_manifest_leads_nowhere_else(tmp_path: Path) -> None:
    store = store_with_files(tmp_path)
    names = ["../../study.yaml", "/etc/passwd", "a//b", "./status.json", "", "a\0b"]
    victim = min(store.experiments.iterdir())
    manifest = json.loads((victim / MANIFEST).read_bytes())
    for name in names:
        changed = manifest | {"files": {**manifest["files"], name: {"bytes": 1, "sha256": "0" * 64}}}
        (victim / MANIFEST).write_text(json.dumps(changed))
        (damaged,) = store.contents().damaged
        assert damaged.reason.startswith("manifest.json can't be read"), name


def test_folders_in_folders_without_end_are_no_result(tmp_path: Path) -> None:
    store = store_with_files(tmp_path)
    victim = min(store.experiments.iterdir())
    (victim / "samples" / "again").symlink_to("..")
    (damaged,) = store.contents().damaged
    assert "too many folders lie in each other" in damaged.reason


def test_what_is_no_result_is_left_alone(tmp_path: Path) -> None:
    store = store_with_files(tmp_path)
    for directory in list(store.experiments.iterdir()):
        (directory / "my notes.txt").write_text("quiet machine")
        os.mkfifo(directory / ".hidden")
    (store.experiments / "mine.txt").write_text("mine")
    (store.experiments / "figures").mkdir()
    contents = store.contents(every_byte=True)
    assert (len(contents.results), contents.damaged) == (4, ())


@pytest.mark.parametrize("instead", ["file", "fifo", "loop", "empty directory", "copy without status"])
def test_something_else_in_a_results_place_is_damage(tmp_path: Path, instead: str) -> None:
    store = store_with_files(tmp_path)
    victim, other, *_ = sorted(store.experiments.iterdir())
    shutil.rmtree(victim)
    if instead == "file":
        victim.write_text("")
    elif instead == "fifo":
        os.mkfifo(victim)
    elif instead == "loop":
        victim.symlink_to(victim.name)
    elif instead == "empty directory":
        victim.mkdir()
    else:
        shutil.copytree(other, victim)
        (victim / "status.json").unlink()
    (damaged,) = store.contents().damaged
    assert damaged.name == victim.name
    assert len(store.contents().results) == 3


@pytest.mark.parametrize(
    "mutate", [truncate, empty, delete, fifo_instead, link_loop_instead, endless_device_instead]
)
def test_a_study_file_that_cannot_be_read_leaves_the_results(
    tmp_path: Path, mutate: Callable[[Path, Path], None]
) -> None:
    store = store_with_files(tmp_path)
    mutate(tmp_path / "study.yaml", tmp_path / "study.yaml")
    contents = store.contents()
    assert len(contents.results) == 4
    assert (contents.study is None) and (contents.study_problem is None) == (mutate is delete)
    assert len(read_report(tmp_path).cells) == 4


def test_comparing_with_a_damaged_result_is_one_line(tmp_path: Path) -> None:
    store = store_with_files(tmp_path)
    first, second, third, _ = sorted(store.experiments.iterdir())
    swap(second / "breakdown.json", third / "breakdown.json")
    shutil.copy(second / "breakdown.json", tmp_path / "copy.json")
    arguments = ["compare", str(first / "breakdown.json")]
    run = CliRunner().invoke(application("compare"), [*arguments, str(second / "breakdown.json")])
    assert "breakdown.json has " in str(run.exception)
    assert "\n" not in str(run.exception)
    assert CliRunner().invoke(application("compare"), [*arguments, str(first / "breakdown.json")]).exit_code == 0
    assert CliRunner().invoke(application("compare"), [*arguments, str(tmp_path / "copy.json")]).exit_code == 0


def test_a_manifest_is_of_every_file_and_verifiable_without_us(tmp_path: Path) -> None:
    import hashlib

    store = store_with_files(tmp_path)
    directory = min(store.experiments.iterdir())
    manifest = Manifest.model_validate_json((directory / MANIFEST).read_bytes())
    assert manifest.name == directory.name
    assert set(manifest.files) == set(FILES) - {MANIFEST}
    for name, record in manifest.files.items():
        content = (directory / name).read_bytes()
        assert (record.bytes, record.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 2 << 30)
    before = len(os.listdir("/proc/self/fd"))
    for path, reason in (
        (tmp_path / "fifo", "not a regular"),
        (tmp_path, "not a regular"),
        (tmp_path / "huge", "longer"),
    ):
        with pytest.raises(OSError, match=reason):
            read_regular(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_studys_experiments_are_those_of_the_store(tmp_path: Path) -> None:
    store = store_with_files(tmp_path)
    study = validate(Study, parse_yaml(SMALL, "s"), "s")
    assert [r.directory.name for r in store.contents().results] == [e.slug for e in study.experiments()]


def test_a_result_that_is_replaced_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with_files(tmp_path)
    replaced, removed, *_ = sorted(store.experiments.iterdir())
    (replaced / "status.json").unlink()
    (removed / "status.json").unlink()
    original = read_result

    def read_meanwhile(directory: Path, *arguments: str, every_byte: bool) -> Result:
        try:
            return original(directory, *arguments, every_byte=every_byte)
        finally:
            if directory == removed:
                shutil.rmtree(directory)
            elif directory == replaced and not (directory / "status.json").exists():
                directory.rename(directory.with_name(".old"))
                shutil.copytree(template(True) / "experiments" / directory.name, directory)

    monkeypatch.setattr(store_module, "read_result", read_meanwhile)
    contents = store.contents()
    assert contents.damaged == ()
    assert len(contents.results) == 3
    assert replaced.name in {r.directory.name for r in contents.results}
