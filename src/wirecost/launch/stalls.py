"""Detects processes that make no progress, because they are stopped or hang in the kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wirecost.launch.processes import ProcessState, process_state

STALLED_S = 15.0
"""Time in seconds without progress after which a process counts as stalled."""
LOOK_S = 1.0
"""Shortest time in seconds between two looks at the processes."""
LONGEST_LOOK_S = 2.0
"""Longest time in seconds between two looks that counts. In a longer one, this process itself was stopped or
suspended and observed nothing."""
STOPPED, UNINTERRUPTIBLE = "T", "D"


@dataclass(frozen=True)
class Stall:
    """A process that made no progress for `STALLED_S` seconds."""

    pid: int
    letter: str

    @property
    def reason(self) -> str:
        """The cause as far as it is known, as the end of a sentence."""
        if self.letter == STOPPED:
            return "is stopped (SIGSTOP or a job control signal); it continues with SIGCONT"
        return "hangs in the kernel (a disk, swapping or a driver) and uses no processor time"


class ElapsedTime:
    """Elapsed time in seconds without the pauses in which this process itself was stopped or suspended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self.seconds = 0.0

    def step(self) -> float:
        """Returns the observed time since the last step, and adds it to `seconds`."""
        now = self._clock()
        step = min(now - self._last, LONGEST_LOOK_S)
        self._last = now
        self.seconds += step
        return step


class StallWatch:
    """Finds processes that are stopped (state T) or use no processor time in an uninterruptible wait (state D).

    Args:
        disk_may_be_slow: whether processes in state D are ignored, because they may wait for a slow disk. They are
            then subject to the time limit of the run only.
        read: returns the state of a process.
        clock: returns a time in seconds.
    """

    def __init__(
        self,
        *,
        disk_may_be_slow: bool = False,
        read: Callable[[int], ProcessState | None] = process_state,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._letters = STOPPED if disk_may_be_slow else STOPPED + UNINTERRUPTIBLE
        self._read = read
        self._elapsed = ElapsedTime(clock)
        self._since_look = 0.0
        self._stalled: dict[int, tuple[ProcessState, float]] = {}

    def look(self, pids: Callable[[], Iterable[int]]) -> Stall | None:
        """Returns the process that has stalled for the longest time, or None if none has for `STALLED_S` seconds.

        It may be called often. It looks at the processes every `LOOK_S` seconds, and only then calls `pids`.
        """
        self._since_look += self._elapsed.step()
        if self._since_look < LOOK_S:
            return None
        step, self._since_look = self._since_look, 0.0
        stalled: dict[int, tuple[ProcessState, float]] = {}
        for pid in pids():
            state = self._read(pid)
            if state is None or state.letter not in self._letters:
                continue
            before, seconds = self._stalled.get(pid, (None, 0.0))
            stalled[pid] = (state, seconds + step if before == state else 0.0)
        self._stalled = stalled
        longest = max(stalled.items(), key=lambda item: item[1][1], default=None)
        if longest is None or longest[1][1] < STALLED_S:
            return None
        return Stall(longest[0], longest[1][0].letter)
