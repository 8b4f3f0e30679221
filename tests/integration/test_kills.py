"""Nothing stays behind of commands that are ended by a signal, whenever it comes."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from support.kills import SIGNALS, end_many

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]

COUNT = int(os.environ.get("WIRECOST_KILLS", "40"))


@pytest.mark.timeout(1500)
def test_nothing_is_left_of_a_command_that_a_signal_ended_in_its_first_10_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("WIRECOST_SEED", time.strftime("%Y%m%d")))
    shared_memory = set(os.listdir("/dev/shm"))
    ended = list(end_many(COUNT, tmp_path, seed=seed, at_once=8))
    by_signal = Counter(killed.signal for killed in ended)
    slowest = max(killed.gone_after_s for killed in ended)
    with capsys.disabled():
        counts = ", ".join(f"{number.name} {by_signal[number]}" for number in SIGNALS)
        left = sum(bool(killed.left) for killed in ended)
        print(
            f"\nkills: {len(ended)} (seed {seed}: {counts}); {left} left something; slowest gone {slowest:.1f} s"
        )
    assert len(ended) == COUNT
    assert [killed for killed in ended if killed.left] == []
    assert set(os.listdir("/dev/shm")) - shared_memory == set()
    for killed in ended:
        if killed.signal is signal.SIGKILL:
            assert killed.code == -signal.SIGKILL
            continue
        # Before Python code of ours runs, a signal has its default action.
        assert killed.code in (128 + killed.signal, -killed.signal), killed
        if killed.code > 0:
            assert "Traceback" not in killed.stderr, killed
            said = "interrupted" if killed.signal is signal.SIGINT else f"ended by {killed.signal.name}"
            assert said in killed.stderr.splitlines()[-1], killed
