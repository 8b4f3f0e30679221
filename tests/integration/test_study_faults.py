"""Faults around a study: few file descriptors, a clock that jumps, a full disk in the last step, a read-only store."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wirecost.study.store as store_module
from support.studies import done, faulty_worker, only, start, wait_for_samples, write_study
from wirecost.report import read_report
from wirecost.spec import Study, load
from wirecost.storage import write_file
from wirecost.study import Status, Store, run_study
from wirecost.study.state import State, read_state
from wirecost.study.store import PARTIAL, StoreError

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]


def run_with_files(study: Path, out: Path, soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wirecost", "study", "run", str(study), "--out", str(out)],
        capture_output=True, text=True, check=False, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )  # fmt: skip


def test_a_low_limit_on_open_files_is_raised_or_refused_with_what_to_do(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    refused = run_with_files(study, tmp_path / "out", 40, 40)
    assert refused.returncode == 2
    assert "at most 40 files may be open here, and at least 80 are needed" in refused.stderr
    assert "ulimit -n" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    raised = run_with_files(study, tmp_path / "out", 40, 4096)
    assert raised.returncode == 0, raised.stderr


def test_a_clock_that_jumps_back_changes_no_time(tmp_path: Path) -> None:
    study = load(Study, write_study(tmp_path, ("iterations: 3", "iterations: 6")))
    body = (
        "import time\n"
        "now, calls = time.time, [0]\n"
        "def jumping():\n"
        "    calls[0] += 1\n"
        "    return now() - (86400 if calls[0] > 3 else 0)\n"
        "time.time = jumping\n"
        "time.time_ns = lambda: int(jumping() * 1e9)\n"
    )
    breakdown = done(only(run_study(study, tmp_path / "out", worker=faulty_worker(tmp_path, body))))
    times_ns = breakdown.iteration_times_ns()
    assert len(times_ns) == 6
    assert all(0 < t < 60e9 for t in times_ns)


def test_a_run_whose_start_lies_in_the_future_has_run_for_no_negative_time(tmp_path: Path) -> None:
    study, out = load(Study, write_study(tmp_path)), tmp_path / "out"
    store = Store(out)
    with store.locked():
        store.save_study(study)
        directory = store.begin(study.experiments()[0])
        os.utime(directory / "experiment.yaml", (2**33, 2**33))
        from wirecost.study.run_record import recorded_run

        with recorded_run(out):
            (state,) = read_state(out).experiments
    assert state.state is State.RUNNING
    assert state.seconds == 0
    assert state.left_s is not None and state.left_s > 0


def test_a_disk_that_is_full_when_the_breakdown_is_written_loses_nothing_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load(Study, write_study(tmp_path, ("hosts: [2]", "hosts: [1, 2]")))
    out = tmp_path / "out"
    write, written = write_file, []

    def full(path: Path, *content: Any) -> None:
        if path.name == "breakdown.json":
            written.append(path)
            if len(written) == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, *content)

    monkeypatch.setattr(store_module, "write_file", full)
    with pytest.raises(StoreError, match=r"No space left on device; make room there .*--resume"):
        run_study(study, out)
    (kept,) = (p for p in (out / "experiments").iterdir() if not p.name.startswith("."))
    before = (kept / "status.json").stat().st_ino
    assert not list((out / "experiments").glob(f"{PARTIAL}*"))
    results = run_study(study, out, resume=True)
    assert [r.outcome.status for r in results] == [Status.DONE, Status.DONE]
    assert (kept / "status.json").stat().st_ino == before


def test_sigterm_keeps_what_is_finished_and_a_later_run_goes_on(tmp_path: Path) -> None:
    study = write_study(tmp_path, ("[all-reduce]", "[all-reduce, ddp]"), ("iterations: 3", "iterations: 30"))
    out = tmp_path / "out"
    run = start(study, out)
    directory = wait_for_samples(out)
    run.send_signal(signal.SIGTERM)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors
    assert not directory.exists() or directory.name.startswith(PARTIAL)
    assert {each.state for each in read_state(out).experiments} <= {State.DONE, State.WAITING, State.INTERRUPTED}
    results = run_study(load(Study, study), out, resume=True)
    assert [r.outcome.status for r in results] == [Status.DONE, Status.DONE]


def test_a_store_that_cannot_be_written_is_reported_and_not_run_on(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    out = tmp_path / "out"
    run_study(load(Study, study), out)
    (out / "index.jsonl").unlink()
    code = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "out = sys.argv[1].encode()\n"
        "assert libc.unshare(0x00020000) == 0\n"  # CLONE_NEWNS
        "assert libc.mount(b'none', b'/', None, 0x44000, None) == 0\n"  # MS_REC | MS_PRIVATE
        "assert libc.mount(out, out, None, 0x1000, None) == 0\n"  # MS_BIND
        "assert libc.mount(None, out, None, 0x1021, None) == 0\n"  # MS_BIND | MS_REMOUNT | MS_RDONLY
        "os.execvp(sys.argv[2], sys.argv[2:])\n"
    )

    def read_only(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, str(out), sys.executable, "-m", "wirecost", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system read-only")
    report = read_only("report", str(out))
    assert report.returncode == 0, report.stderr
    assert len(read_report(out).cells) == 1
    assert read_only("study", "status", str(out)).returncode == 0
    refused = read_only("study", "run", str(study), "--out", str(out), "--resume")
    assert refused.returncode == 2
    assert "Read-only file system" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_file_system_without_locks_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StoreError, match=r"can't be locked: No locks available; choose another --out"):
        run_study(load(Study, write_study(tmp_path)), tmp_path / "out")
