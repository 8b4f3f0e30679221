from __future__ import annotations

import errno
import os
import threading
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

import pytest

from support.results import invented_store
from wirecost.storage import FAULTS, StorageError
from wirecost.study import Status, Store
from wirecost.study.store import PARTIAL, DamagedResultWarning, Outcome, StoreError


def test_what_is_not_published_does_not_exist(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    results = store.results()
    experiment = results[0].experiment
    with store.locked():
        store.begin(experiment)
    assert len(list(store.experiments.glob(f"{PARTIAL}*"))) == 1
    assert store.results() == results
    with store.locked():
        store.sweep()
    assert not list(store.experiments.glob(f"{PARTIAL}*"))
    assert store.results() == results


def test_publishing_again_replaces(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    experiment = store.results()[0].experiment
    with store.locked():
        store.begin(experiment)
        store.publish(experiment, Outcome(status=Status.SKIPPED, reason="why not"), None)
    assert store.results()[0].outcome.reason == "why not"
    assert len(store.results()) == 16


@pytest.mark.parametrize("content", [b"", b'{"status": "fai', b"\xff\xfe", b"[]", None])
@pytest.mark.parametrize("with_manifest", [True, False])
def test_a_status_that_cannot_be_read_is_one_line_that_names_it(
    tmp_path: Path, content: bytes | None, with_manifest: bool
) -> None:
    store = invented_store(tmp_path)
    result = store.results()[0]
    path = result.directory / "status.json"
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)
    if not with_manifest:
        (result.directory / "manifest.json").unlink()
    contents = store.contents()
    assert [d.name for d in contents.damaged] == [result.directory.name]
    assert contents.damaged[0].reason.startswith("status.json ")
    assert "\n" not in contents.damaged[0].reason
    assert "pydantic" not in contents.damaged[0].reason
    assert len(contents.results) == 15
    with pytest.warns(DamagedResultWarning, match=r"left out: .*status\.json"):
        assert store.results() == list(contents.results)


def test_publishing_again_and_killed_in_between_leaves_no_half_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = invented_store(tmp_path)
    experiment = store.results()[0].experiment

    def killed(path: Path) -> None:
        (path / "experiment.yaml").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr("wirecost.study.removal.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt), store.locked():
        store.begin(experiment)
        store.publish(experiment, Outcome(status=Status.SKIPPED, reason="why not"), None)
    monkeypatch.undo()
    assert store.results()[0].outcome.reason == "why not"
    with store.locked():
        store.sweep()
    assert not list(store.experiments.glob(f"{PARTIAL}*"))


def test_the_demo_run_again_removes_its_own_results_alone_and_only_when_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirecost.cli.demo import demo

    class Stop(Exception):
        pass

    def stop(*_: object, **__: object) -> None:
        raise Stop

    text = (files("wirecost.spec.presets") / "studies/demo-quick.yaml").read_text()
    store = invented_store(tmp_path, text=f"name: demo-quick\n{text}")
    mine = tmp_path / "experiments" / "mine.txt"
    mine.write_text("not wirecost's")
    monkeypatch.setattr("wirecost.study.run_study", stop)
    with store.locked(), pytest.raises(StoreError, match="another run is writing here"):
        demo(out=tmp_path, quick=True, again=True)
    assert len(store.results()) == 2
    with pytest.raises(Stop):
        demo(out=tmp_path, quick=True, again=True)
    assert list(store.experiments.iterdir()) == [mine]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        Store(tmp_path).locked(),
        pytest.raises(StoreError, match="another run is writing here"),
        Store(tmp_path).locked(),
    ):
        pass


@pytest.mark.parametrize("number", sorted(FAULTS))
def test_a_fault_of_the_storage_is_one_line_with_what_to_do(tmp_path: Path, number: int) -> None:
    with pytest.raises(StoreError) as refusal, Store(tmp_path).locked():
        raise OSError(number, os.strerror(number), "big")
    assert str(refusal.value).startswith(
        f"big: {FAULTS[number].what}; {FAULTS[number].remedy}, then go on with --resume"
    )
    with pytest.raises(StoreError, match=r"^/data/x: can't be written: .*--resume"), Store(tmp_path).locked():
        raise StorageError("/data/x", FAULTS[errno.ENOSPC])


def test_what_goes_wrong_in_the_store_itself_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"can't be used: No such file or directory; .*--resume"),
        Store(tmp_path).locked(),
    ):
        (tmp_path / "gone").read_bytes()
    with pytest.raises(PermissionError), Store(tmp_path / "here").locked():
        raise PermissionError(errno.EACCES, "another thing")
    with pytest.raises(PermissionError), Store(tmp_path / "here").locked():
        raise PermissionError(errno.EACCES, "another thing", str(tmp_path / "elsewhere"))


def test_a_leftover_that_cannot_be_deleted_is_one_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = invented_store(tmp_path)
    experiment = store.results()[0].experiment
    leftover = store.begin(experiment)

    def refused(path: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path / "logs"))

    monkeypatch.setattr("wirecost.study.removal.shutil.rmtree", refused)
    for remove in (store.sweep, lambda: store.begin(experiment)):
        with pytest.raises(StoreError) as refusal, store.locked():
            remove()
        assert str(refusal.value).startswith(f"{leftover}: is left of an earlier run and can't be deleted: ")
        assert f"{leftover}/logs: Operation not permitted; delete it" in str(refusal.value)
        assert "\n" not in str(refusal.value)
    store.discard(experiment)
    assert leftover.is_dir()


def test_leftovers_of_any_kind_are_swept(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("")
    (store.experiments / f"{PARTIAL}file").write_text("")
    (store.experiments / f"{PARTIAL}link").symlink_to(elsewhere)
    (store.experiments / f"{PARTIAL}loop").symlink_to(f"{PARTIAL}loop")
    os.mkfifo(store.experiments / f"{PARTIAL}fifo")
    (store.experiments / f"{PARTIAL}directory" / "samples").mkdir(parents=True)
    store.sweep()
    assert not list(store.experiments.glob(f"{PARTIAL}*"))
    assert (elsewhere / "precious").exists()
    assert len(store.results()) == 16


@pytest.mark.parametrize("instead", ["directory", "loop"])
def test_a_lock_that_is_no_file_is_one_line(tmp_path: Path, instead: str) -> None:
    lock = tmp_path / ".lock"
    lock.mkdir() if instead == "directory" else lock.symlink_to(".lock")
    with pytest.raises(StoreError, match=r"\.lock: can't be written: "), Store(tmp_path).locked():
        pass


def test_a_job_waits_while_further_jobs_of_its_study_are_submitted(tmp_path: Path) -> None:
    ended: list[bool] = []
    with ExitStack() as submission:
        submission.enter_context(Store(tmp_path).locked())
        with pytest.raises(StoreError, match="another run is writing here"), Store(tmp_path).locked(shared=True):
            pass
        threading.Timer(0.3, lambda: (ended.append(True), submission.close())).start()
        with Store(tmp_path).locked(shared=True, wait_s=60):
            assert ended


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="can't be written"), Store(tmp_path / "file").locked():
        pass
