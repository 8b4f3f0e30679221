"""A study whose processes are killed at random moments loses nothing (`benchmarks/soak.py` runs a longer one)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.soak import soak

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]


def test_every_experiment_is_done_in_the_end_and_none_is_lost(tmp_path: Path) -> None:
    soaked = soak(tmp_path, 4, seed=3, kill_every_s=(3.0, 8.0))
    assert soaked.problems(4) == []
    assert soaked.runs >= 2
