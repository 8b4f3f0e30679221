"""`wirecost trace` as a user runs it: exit codes, one clear line, Ctrl-C, and the page in a real browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.commands import wirecost_here
from support.tracefiles import make_job, write_job


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wirecost", "trace", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b"", "empty"), ("a.pkl", b"\x80\x04\x95rest", "pickle"), ("a.json", b"{}", "traceEvents"),
        ("a.txt", b"hello\nworld", "not JSON"), ("a.zip", b"PK\x03\x04", "zip"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    done = wirecost_here("trace", tmp_path / name)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr and name in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["nowhere.json"], ["{job}", "--format", "xml"], ["{job}", "--window", "steps"], 
     ["{job}", "--comm-pattern", "("],     ["{job}", "--rank", "x"], ["{job}", "--format", "parquet"], ["{job}", "--format", "csv", "--table", "nope"],
     ["{job}", "--html", "/nowhere/x.html"]],
)  # fmt: skip
def test_bad_options_are_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    write_job(tmp_path / "job", 2, 1)
    done = wirecost_here("trace", *(a.format(job=tmp_path / "job") for a in arguments))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_breakdown_file_comes_out(tmp_path: Path) -> None:
    from wirecost.breakdown import Breakdown

    write_job(tmp_path / "job", 2, 2)
    done = run(tmp_path / "job", "--breakdown", tmp_path / "b.json")
    assert done.returncode == 0, done.stderr
    breakdown = Breakdown.model_validate_json((tmp_path / "b.json").read_bytes())
    assert len(breakdown.iterations) == 4


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    made = make_job(2, 1)
    job = tmp_path / "job"
    job.mkdir()
    for m in made:
        # Two ranks large enough for workers, and never-ending: pipes that nobody closes.
        os.mkfifo(job / f"rank{m.rank}.json")
    code = (
        "import wirecost.trace.pool as p, sys; from pathlib import Path; p._SMALL_BYTES = 0\n"
        "from wirecost.trace.rank import Options\n"
        "print('started', flush=True)\n"
        "p.read_all([Path(a) for a in sys.argv[1:]], Options(), jobs=2)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *(str(p) for p in sorted(job.iterdir()))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 20
    while len(_children(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    children = _children(process.pid)
    assert len(children) == 2
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=20)
    while any(Path(f"/proc/{c}").exists() for c in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [c for c in children if Path(f"/proc/{c}").exists()]


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(make_job(1, 1)[0].text)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "wirecost", "trace", str(tmp_path), "--format", "json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left" in done.stderr
