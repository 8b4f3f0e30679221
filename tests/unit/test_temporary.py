"""Temporary directories that go away however their process ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from wirecost.storage import StorageError
from wirecost.temporary import temporary_directory

HOLDS = """\
import sys, time
from wirecost.storage import StorageError
from wirecost.temporary import temporary_directory
with temporary_directory("wirecost-test-") as path:
    (path / "full").mkdir()
    (path / "full" / "file").write_text("text")
    print(path, flush=True)
    time.sleep(600)
"""


def test_it_is_there_inside_and_gone_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_directory("wirecost-test-") as path:
        assert path.parent == tmp_path
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "file").write_text("text")
    assert not list(tmp_path.iterdir())
    with pytest.raises(LookupError), temporary_directory("wirecost-test-") as path:
        raise LookupError
    assert not list(tmp_path.iterdir())


def test_the_process_may_be_killed(tmp_path: Path) -> None:
    run = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    path = Path(run.stdout.readline().strip())
    assert (path / "full" / "file").exists()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    deadline = time.monotonic() + 30
    while path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_without_a_usable_directory_it_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    monkeypatch.setenv("TMPDIR", "/full")
    with (
        pytest.raises(StorageError, match=r"^/full: no directory for temporary files can be written; .*TMPDIR"),
        temporary_directory("wirecost-test-"),
    ):
        pass
