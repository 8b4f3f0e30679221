"""The use of the processors by other programs is told from the experiment's own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from wirecost.study.busy import OthersWatch, busy_fraction


def stat(path: Path, *, user_s: float, idle_s: float, interrupts_s: float = 0) -> Path:
    ticks = os.sysconf("SC_CLK_TCK")
    user, idle, softirq = (round(t * ticks) for t in (user_s, idle_s, interrupts_s))
    path.write_text(f"cpu  {user} 0 0 {idle} 0 0 {softirq} 0 0 0\n")
    return path


def test_what_others_used_is_a_share_of_all_cores(tmp_path: Path) -> None:
    path = stat(tmp_path / "stat", user_s=100, idle_s=100)
    watch = OthersWatch(path)
    stat(path, user_s=130, idle_s=160, interrupts_s=10)
    # 30 s of programs in 100 s of all cores; interrupts are not attributed to anybody
    assert watch.fraction() == pytest.approx(0.3, abs=0.01)


def test_own_work_does_not_count(tmp_path: Path) -> None:
    path = stat(tmp_path / "stat", user_s=100, idle_s=100)
    watch = OthersWatch(path)
    began = time.process_time()
    while time.process_time() - began < 0.3:
        pass
    own = time.process_time() - began
    stat(path, user_s=100 + own, idle_s=102 - own)
    assert watch.fraction() == pytest.approx(0.0, abs=0.02)


def test_without_a_kernels_word_nothing_is_known(tmp_path: Path) -> None:
    assert busy_fraction(tmp_path / "none") is None
    assert OthersWatch(tmp_path / "none").fraction() is None


def test_a_moment_says_nothing(tmp_path: Path) -> None:
    path = stat(tmp_path / "stat", user_s=100, idle_s=100)
    watch = OthersWatch(path)
    stat(path, user_s=100.5, idle_s=100)
    assert watch.fraction() is None
