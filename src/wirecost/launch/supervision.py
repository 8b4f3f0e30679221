"""Waits for an isolated command. A command that is stopped or hangs can't enforce its own time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from wirecost.launch.processes import descendants
from wirecost.launch.stalls import ElapsedTime, StallWatch

ABOVE_RANKS = 2
"""Number of processes between the started process and the ranks: the init process and the command itself (see
`wirecost.launch.isolate`)."""


class Supervised(Protocol):
    """An isolated command (`wirecost.launch.isolate.Isolated` or `wirecost.launch.preloaded.IsolatedFork`)."""

    @property
    def pid(self) -> int | None:
        """Process ID of the ancestor of all processes of the command, or None before it has started."""
        ...

    def poll(self) -> int | None:
        """Returns the exit code, or None while the command runs."""
        ...


def await_end(
    command: Supervised,
    tick: Callable[[], None],
    *,
    every_s: float,
    limit_s: float | None = None,
    server: Callable[[], int | None] = lambda: None,
) -> int | str:
    """Waits for a command to end.

    Args:
        tick: called every `every_s` seconds, and once after the end.
        limit_s: time limit in seconds, or None.
        server: returns the process ID of the process that has to start the command, or None without one.

    Returns:
        The exit code, or the end of a sentence that says why the command doesn't end. The caller then closes it.
    """
    # The command watches its ranks itself. It may wait for a disk.
    stalls = StallWatch(disk_may_be_slow=True)
    elapsed = ElapsedTime()

    def watched() -> list[int]:
        root = command.pid
        if root is not None:
            return [root, *descendants(root)[:ABOVE_RANKS]]
        return [] if (pid := server()) is None else [pid]

    while (code := command.poll()) is None:
        tick()
        elapsed.step()
        if stall := stalls.look(watched):
            return f"made no progress: process {stall.pid}, which runs its ranks, {stall.reason}"
        if limit_s is not None and elapsed.seconds > limit_s:
            return f"did not end within {limit_s:.0f} s"
        time.sleep(every_s)
    tick()
    return code
