"""Isolated commands leave nothing behind, with namespaces and without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.studies import processes_about
from wirecost.launch.isolate import Isolated
from wirecost.launch.processes import descendants, process_state
from wirecost.launch.supervision import await_end

# A child that leaves its session and whose parent ends: nothing ties it to the command but that it descends from it.
DAEMON = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execvp("sleep", ["sleep", "1000.5", sys.argv[1]])
os.wait()
open(sys.argv[1] + "/started", "w").close()
{then}
"""
SHARES = """\
import mmap, os, sys, time
fd = os.open(sys.argv[2], os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 4096)
memory = mmap.mmap(fd, 4096)
open(sys.argv[1] + "/started", "w").close()
time.sleep(1000)
"""
CALLER = """\
import sys, time
from wirecost.launch.isolate import Isolated
with Isolated(sys.argv[2:], network=sys.argv[1] == "network", output=sys.stderr.buffer):
    time.sleep(1000)
"""


@pytest.fixture(params=[pytest.param(True, marks=pytest.mark.needs_root), False], ids=["isolated", "plain"])
def network(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_command_that_is_closed_at_once_does_not_survive(tmp_path: Path, network: bool) -> None:
    with (tmp_path / "log").open("wb") as log:
        for number in range(20):
            command = Isolated(["sleep", "1000", str(tmp_path)], network=network, output=log)
            time.sleep(0.005 * number)
            command.close()
            assert processes_about(tmp_path) == []


def test_a_daemon_of_the_command_ends_with_it(tmp_path: Path, network: bool) -> None:
    argv = [sys.executable, "-c", DAEMON.format(then=""), str(tmp_path)]
    with (tmp_path / "log").open("wb") as log, Isolated(argv, network=network, output=log) as command:
        assert command.wait(60) == 0
    assert (tmp_path / "started").exists()
    assert processes_about(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_ends_with_a_caller_that_is_killed(tmp_path: Path, network: bool, number: signal.Signals) -> None:
    inner = [sys.executable, "-c", DAEMON.format(then="time.sleep(1000)"), str(tmp_path)]
    mode = "network" if network else "plain"
    caller = subprocess.Popen([sys.executable, "-c", CALLER, mode, *inner])
    eventually((tmp_path / "started").exists)
    assert processes_about(tmp_path)
    caller.send_signal(number)
    caller.wait()
    eventually(lambda: not processes_about(tmp_path))


def test_shared_memory_of_killed_processes_is_removed(tmp_path: Path, network: bool) -> None:
    memory = Path("/dev/shm") / f"wirecost-test-{os.getpid()}-{network}"
    argv = [sys.executable, "-c", SHARES, str(tmp_path), str(memory)]
    with (tmp_path / "log").open("wb") as log, Isolated(argv, network=network, output=log):
        eventually((tmp_path / "started").exists)
        assert memory.exists()
    assert not memory.exists()


def test_shared_memory_that_was_there_before_stays(tmp_path: Path) -> None:
    memory = Path("/dev/shm") / f"wirecost-test-{os.getpid()}-older"
    memory.write_bytes(bytes(4096))
    os.utime(memory, (0, 0))
    reads = SHARES.replace("os.ftruncate(fd, 4096)", "")
    argv = [sys.executable, "-c", reads, str(tmp_path), str(memory)]
    try:
        with (tmp_path / "log").open("wb") as log, Isolated(argv, network=False, output=log):
            eventually((tmp_path / "started").exists)
        assert memory.exists()
    finally:
        memory.unlink()


def test_a_command_whose_processes_are_all_stopped_is_noticed_and_ended(tmp_path: Path, network: bool) -> None:
    argv = [sys.executable, "-c", DAEMON.format(then="time.sleep(1000)"), str(tmp_path)]
    with (tmp_path / "log").open("wb") as log, Isolated(argv, network=network, output=log) as command:
        eventually((tmp_path / "started").exists)
        init, cell = descendants(command.pid)[:2]
        os.kill(cell, signal.SIGSTOP)
        eventually(lambda: (state := process_state(cell)) and state.letter == "T")
        reason = await_end(command, lambda: None, every_s=0.1)
        assert reason == (
            f"made no progress: process {cell}, which runs its ranks, is stopped (SIGSTOP or a job control signal); "
            "it continues with SIGCONT"
        )
        assert process_state(init) is not None
    assert processes_about(tmp_path) == []


def test_a_stopped_init_process_cannot_keep_anything_alive(
    tmp_path: Path, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirecost.launch.isolate.CLOSE_S", 1.0)
    argv = [sys.executable, "-c", DAEMON.format(then="time.sleep(1000)"), str(tmp_path)]
    with (tmp_path / "log").open("wb") as log, Isolated(argv, network=network, output=log) as command:
        eventually((tmp_path / "started").exists)
        for pid in descendants(command.pid):
            os.kill(pid, signal.SIGSTOP)
        os.kill(command.pid, signal.SIGSTOP)
    assert processes_about(tmp_path) == []
