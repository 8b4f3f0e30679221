"""Waiting for an isolated command that may be stopped or hang, in which case it can't keep its own time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from wirecost.launch.processes import descendants
from wirecost.launch.stalls import ElapsedTime, StallWatch

ABOVE_RANKS = 2
"""An init process and the command itself, below the process that started them (`wirecost.launch.isolate`)."""


class Supervised(Protocol):
    """An isolated command (`wirecost.launch.isolate.Isolated` or `wirecost.launch.preloaded.IsolatedFork`)."""

    @property
    def pid(self) -> int | None: ...

    def poll(self) -> int | None: ...


def await_end(
    command: Supervised,
    tick: Callable[[], None],
    *,
    every_s: float,
    limit_s: float | None = None,
    server: Callable[[], int | None] = lambda: None,
) -> int | str:
    """Waits for a command's end.

    Args:
        tick: called every `every_s` seconds, and once after the end.
        limit_s: time allowed; None sets no limit.
        server: process ID of the process that has to start the command, None where there is none.

    Returns:
        The exit code, or, as the end of a sentence, why the command would never end. The caller then closes it.
    """
    # The command watches its ranks itself, and may wait for a disk.
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
