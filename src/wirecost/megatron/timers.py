"""Megatron-Core's own timers over some warm-up iterations. They synchronize the GPU: measured ones have none."""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SETTLED = 2
"""Number of first iterations without timers, in which memory is allocated."""


def timed_iterations(environment: Mapping[str, str]) -> range:
    """Returns the numbers of the iterations that have timers: warm-up iterations between the first ones and the
    last one.

    Outside `wirecost run` there are none.
    """
    return range(SETTLED, int(environment.get("WIRECOST_JOB_WARMUP", "0")) - 1)


class TimerLog:
    """Writes the times of a rank's timers in seconds to `timers/rank-R.jsonl` in the folder of the run."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        folder = environment.get("WIRECOST_JOB")
        self._path = Path(folder) / "timers" / f"rank-{environment.get('RANK', '0')}.jsonl" if folder else None

    def timers(self) -> Any:
        """Returns new timers for one iteration. They start without barriers."""
        from megatron.core.timers import Timers

        return Timers(log_level=2, log_option="all")

    def write(self, iteration: int, timers: Any) -> None:
        """Appends the times of one iteration. A timer that never ran has none."""
        if self._path is None:
            return
        times_s = {name: timer.elapsed(reset=True, barrier=False) for name, timer in timers._timers.items()}
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"iteration": iteration, "times_s": times_s}) + "\n")
