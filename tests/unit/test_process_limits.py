"""Limits on open files, processes and threads end a command in one line that names the limit."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from wirecost.errors import UnsupportedError
from wirecost.process_limits import check_threads, explain


class PanicException(BaseException):
    """As libraries written in Rust raise it."""


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "x"), "ulimit -n"),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), "ulimit -n"),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "ulimit -u"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (PanicException('Os { code: 11, message: "Resource temporarily unavailable" }'), "ulimit -u"),
        (BlockingIOError(errno.EAGAIN, "write could not complete without blocking", 3), None),
        (PanicException("index out of bounds"), None),
        (RuntimeError("cannot join thread before it is started"), None),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "x"), None),
    ],
)
def test_an_error_tells_which_limit_it_met(error: BaseException, limit: str | None) -> None:
    line = explain(error)
    assert (line is None) == (limit is None)
    if line is not None and limit is not None:
        assert limit in line
        assert "\n" not in line


@pytest.mark.parametrize("command", [("doctor",), ("bench", "-b", "8")])
def test_a_command_without_files_to_open_says_so(command: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wirecost", *command],
        cwd=tmp_path,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (6, 6)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "wirecost: too many open files: raise their limit (ulimit -n), which is 6 here\n"


def test_threads_that_cannot_all_run_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    check_threads(5)
    assert threading.active_count() == before
    start, started = threading.Thread.start, []

    def limited(self: threading.Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(UnsupportedError, match="ulimit -u"):
        check_threads(5)
    assert len(started) == 3
    assert not any(thread.is_alive() for thread in started)


def test_numpy_starts_no_threads() -> None:
    """Where one can't be started, its linear algebra sends the process SIGINT, as if the user had interrupted it."""
    code = (
        "import os\n"
        "from wirecost.address_space import settle_in\n"
        "settle_in()\n"
        "import numpy\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"
