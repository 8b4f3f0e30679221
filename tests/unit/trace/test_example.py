"""The traces that `wirecost.trace.example` writes show what they are invented to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import wirecost.trace
from wirecost.trace.example import write_example


def test_the_late_rank_is_the_cause(tmp_path: Path) -> None:
    paths = write_example(tmp_path / "job", ranks=4, steps=6, late_rank=1)
    assert [path.name for path in paths] == ["rank0.json", "rank1.json", "rank2.json", "rank3.json"]
    traces = wirecost.trace.read(tmp_path / "job")
    assert list(traces.answer.ranks) == [1]
    assert traces.answer.code.startswith("late_")
    assert [(s.rank, s.late, s.collectives) for s in traces.stragglers if s.late] == [(1, 5, 5)]


def test_without_a_late_rank_nobody_is_late(tmp_path: Path) -> None:
    write_example(tmp_path, late_rank=None)
    assert not wirecost.trace.read(tmp_path).answer.code.startswith("late_")


def test_the_command_writes_the_same_traces(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wirecost.trace.example", "job", "--ranks", "2", "--steps", "3"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["job/rank0.json", "job/rank1.json"]
    for path in write_example(tmp_path / "again", ranks=2, steps=3):
        assert path.read_bytes() == (tmp_path / "job" / path.name).read_bytes()


def test_impossible_numbers_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wirecost.trace.example", "job", "--ranks", "0"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert not list(tmp_path.iterdir())
