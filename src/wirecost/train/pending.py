"""Collectives and messages that have been issued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from wirecost.breakdown import Phase
from wirecost.train.recorder import Recorder


class Pending:
    """A collective that has been issued.

    Args:
        future: completes after the end of the collective has been recorded.
        after: local work that `wait` does after the end of the collective.
        work: the collective. A stream waits for it as well, because waiting for a future makes a stream wait
            only if the future's value contains tensors.
    """

    def __init__(
        self,
        future: torch.futures.Future[Any] | None,
        after: Callable[[], None] | None = None,
        work: Any = None,
    ) -> None:
        self.future = future
        self.after = after
        self.work = work

    def wait(self) -> None:
        """Makes the current stream (on a CPU: the caller) wait for the collective, and then does the local
        work."""
        if self.future is not None:
            self.future.wait()
            self.future = None
        if self.work is not None:
            self.work.wait()
            self.work = None
        if self.after is not None:
            self.after()
            self.after = None


DONE = Pending(None)


def wait_all(pending: Sequence[Pending], recorder: Recorder, phase: Phase) -> None:
    """Waits for collectives. The time counts for `phase`, as exposed communication."""
    if pending:
        with recorder.phase(phase):
            for collective in pending:
                collective.wait()
