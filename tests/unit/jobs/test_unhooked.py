"""A job that runs PyTorch without the hook is told from one that is slow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from wirecost.jobs.environment import HOOK
from wirecost.jobs.unhooked import hook_loaded, runs_pytorch


def process(proc: Path, pid: int, maps: str, children: str = "") -> None:
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "children").write_text(children)
    (proc / str(pid) / "maps").write_text(maps)


def test_pytorch_is_found_in_descendants(tmp_path: Path) -> None:
    process(tmp_path, 10, "/usr/bin/bash", "11 12 99 ")
    process(tmp_path, 11, "/usr/bin/python3")
    process(tmp_path, 12, "/usr/bin/python3\n7f00 /x/torch/lib/libtorch_python.so")
    assert runs_pytorch([10], tmp_path)
    assert not runs_pytorch([11, 99], tmp_path)
    assert not runs_pytorch([], tmp_path)


def test_the_hook_is_ready_as_soon_as_pytorch_is_imported(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HOOK), "WIRECOST_JOB": str(tmp_path)}
    script = "import torch; print(flush=True); import sys; sys.stdin.read()"
    for options, loaded in ((["-I"], False), ([], True)):
        command = [sys.executable, *options, "-c", script]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
            assert started.stdout is not None
            started.stdout.readline()
            assert runs_pytorch([started.pid])
            assert hook_loaded(tmp_path) is loaded
            started.communicate()
    assert not runs_pytorch([started.pid])
