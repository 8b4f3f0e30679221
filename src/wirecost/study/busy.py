"""Measures how much of the processors other programs use, before an experiment and while it runs."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
SAMPLE_S = 0.3
LEAST_S = 1.0
"""Shortest time over which the use by others is stated. The kernel counts in steps of 10 ms."""


@dataclass(frozen=True)
class _Times:
    """CPU seconds since the machine started: of all cores together, idle, and of programs. The kernel's work for
    interrupts is not part of the last: traffic of the experiment itself causes it.
    """

    total_s: float
    idle_s: float
    programs_s: float


def _read(stat: Path) -> _Times | None:
    ticks = os.sysconf("SC_CLK_TCK")
    try:
        # user nice system idle iowait irq softirq steal (proc_stat(5))
        times = [int(t) / ticks for t in stat.read_text().splitlines()[0].split()[1:9]]
        return _Times(sum(times), times[3] + times[4], sum(times[:3]) + times[7])
    except (OSError, ValueError, IndexError):
        return None


def _own_s() -> float:
    """Returns the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def busy_fraction(stat: Path = STAT) -> float | None:
    """Returns the share of all cores that programs use now. None if the kernel doesn't report it."""
    before = _read(stat)
    time.sleep(SAMPLE_S)
    after = _read(stat)
    if before is None or after is None or after.total_s <= before.total_s:
        return None
    return 1 - (after.idle_s - before.idle_s) / (after.total_s - before.total_s)


class OthersWatch:
    """Measures the share of all cores that other programs use from now on, in the mean."""

    def __init__(self, stat: Path = STAT) -> None:
        self._stat = stat
        self._before = _read(stat)
        self._own_s = _own_s()

    def fraction(self) -> float | None:
        """Returns the share since the watch began.

        This process and its children that have ended don't count as others. None if the kernel doesn't report it,
        or after a time that is too short.
        """
        after = _read(self._stat)
        own_s = _own_s() - self._own_s
        if self._before is None or after is None:
            return None
        total_s = after.total_s - self._before.total_s
        if total_s < LEAST_S:
            return None
        return max(0.0, after.programs_s - self._before.programs_s - own_s) / total_s
