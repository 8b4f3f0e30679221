"""Isolated processes that are forked from one that has imported what they run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.studies import processes_about
from wirecost.launch.preloaded import EXIT_LOST, Preloaded
from wirecost.study import processes

MODULE = """\
import os, subprocess, sys, time
seen = []
def preload():
    seen.append(os.getpid())
    {preloading}
def main(arguments):
    what, *rest = arguments
    print(what, len(seen), seen and seen[0] != os.getpid(), flush=True)
    if what == "code":
        return int(rest[0])
    if what == "raise":
        raise ValueError("not today")
    if what == "leave":
        subprocess.Popen(["sleep", "1000", rest[0]])
        return 0
    if what == "die":
        os.kill(os.getpid(), 9)
    if what == "stay":
        time.sleep(1000)
    return 0
"""


@pytest.fixture(params=[pytest.param(True, marks=pytest.mark.needs_root), False], ids=["isolated", "plain"])
def network(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def write_module(folder: Path, monkeypatch: pytest.MonkeyPatch, preloading: str = "pass") -> None:
    (folder / "module_of_test.py").write_text(MODULE.format(preloading=preloading))
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.fixture
def preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Preloaded]:
    write_module(tmp_path, monkeypatch)
    with Preloaded("module_of_test", str(tmp_path)) as server:
        yield server
    assert not processes_about(tmp_path)


def run(server: Preloaded, folder: Path, *arguments: str, network: bool) -> tuple[int, str]:
    log = folder / "log"
    with log.open("wb") as output, server.run(arguments, network=network, output=output) as child:
        code = child.wait()
        assert child.poll() == code
    return code, log.read_text()


def test_codes_and_output_come_back_and_nothing_is_imported_again(
    preloaded: Preloaded, tmp_path: Path, network: bool
) -> None:
    for code in (0, 7, 7):
        assert run(preloaded, tmp_path, "code", str(code), network=network) == (code, "code 1 True\n")
    code, text = run(preloaded, tmp_path, "raise", network=network)
    assert code == 1
    assert text.splitlines()[-1] == "ValueError: not today"
    assert run(preloaded, tmp_path, "die", network=network)[0] == 128 + signal.SIGKILL


@pytest.mark.needs_root
def test_what_a_child_leaves_behind_goes_with_it(preloaded: Preloaded, tmp_path: Path) -> None:
    assert run(preloaded, tmp_path, "leave", str(tmp_path), network=True)[0] == 0
    assert not [line for line in processes_about(tmp_path) if "sleep" in line]


def test_closing_ends_what_still_runs(preloaded: Preloaded, tmp_path: Path, network: bool) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        child = preloaded.run(["stay"], network=network, output=output)
        while not log.read_text():
            time.sleep(0.01)
        assert child.poll() is None
        child.close()
        child.close()
    assert len(processes_about(tmp_path)) == 1  # the server


def test_a_server_that_was_killed_is_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(tmp_path, monkeypatch)
    with Preloaded("module_of_test", str(tmp_path)) as server:
        assert run(server, tmp_path, "code", "0", network=False)[0] == 0
        server.process.kill()
        server.process.wait()
        assert run(server, tmp_path, "code", "0", network=False)[0] == EXIT_LOST


def test_a_study_goes_on_with_another_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(tmp_path, monkeypatch)
    monkeypatch.setattr(processes, "CELL", "module_of_test")
    with processes.Cells(tmp_path, ()) as cells, (tmp_path / "log").open("wb") as output:
        servers = set()
        for _ in range(2):
            with cells.start(tmp_path, network=False, output=output, forked=True) as cell:
                assert cell.wait() == 0
            assert cells._preloaded is not None
            servers.add(cells._preloaded.process.pid)
            cells._preloaded.process.kill()
            cells._preloaded.process.wait()
        assert len(servers) == 2
    assert not processes_about(tmp_path)


def test_a_preload_that_fails_is_left_to_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(tmp_path, monkeypatch, "import no_such_module")
    with Preloaded("module_of_test", str(tmp_path)) as server:
        assert run(server, tmp_path, "code", "3", network=False)[0] == 3
    with Preloaded("no_such_module_either", str(tmp_path)) as server:
        code, text = run(server, tmp_path, "code", "3", network=False)
    assert code == 1
    assert "no_such_module_either" in text
