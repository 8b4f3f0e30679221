"""Limits on the address space end a command in one line, whichever library runs out of it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from support.fuzzing.kinds import MEASURED

TABLE = ",".join(MEASURED) + "\n" + ",".join(f'"{v}"' for v in MEASURED.values()) + "\n"


def limited(mib: int, *argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))

    command = [sys.executable, "-m", "wirecost", *argv]
    return subprocess.run(command, cwd=cwd, preexec_fn=limit, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mib", [64, 200, 330, 1000])
@pytest.mark.parametrize("command", ["validate", "calibrate", "sweep", "parquet"])
def test_a_command_answers_or_refuses_in_one_line(mib: int, command: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    from support.tracefiles import make_job

    (tmp_path / "rank0.json").write_bytes(make_job(1, 2, seed=1)[0].text)
    predict = ("predict", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "16")
    argv = {
        "validate": ("validate", "t.csv"),
        "calibrate": ("calibrate", "t.csv"),
        "sweep": (*predict, "--sweep", "gpus=8..32", "--plot", "x.png"),
        "parquet": ("trace", "rank0.json", "--format", "parquet", "--out", "out"),
    }[command]
    done = limited(mib, *argv, cwd=tmp_path)
    assert done.returncode in (0, 1, 2), done.stderr
    if done.returncode:
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("wirecost: "), done.stderr
        assert "MiB" in done.stderr
    # A drawing library that finds no room ends its own process, not the command's.
    assert (
        done.returncode == 2 if mib == 64 or command in ("sweep", "parquet") else mib < 330 or not done.returncode
    )
