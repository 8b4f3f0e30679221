"""A collective, or an exchange of messages, over the ranks whose traces show it."""

from __future__ import annotations

import msgspec
import numpy as np

from wirecost.trace.recorded import Int64

ALIGNED, SHORTEST, PARTIAL = "aligned", "shortest", "partial"


class Matched(msgspec.Struct):
    """One collective or exchange; arrays are in the order of `ranks`, times in ns on the reference rank's clock.

    `basis` is how wait and transfer were determined: `aligned` from the starts on aligned clocks; `shortest` from
    the shortest duration, an upper bound of the transfer; `partial` from the starts of some of the group's ranks,
    also an upper bound of the transfer. `waits_for` is the rank that each rank waited for, -1 if none; a send or
    receive waits for its own peers only. `caused_by` is the rank that caused most of that wait, which the other
    may only have passed on (set by `blame`). `last_rank` came last; if clocks aren't aligned, it is the rank with
    the shortest duration. `bubble` is whether the waits are those of a pipeline's stages for their neighbours.
    `uncertainty_ns` is the uncertainty of the starts due to the clocks.
    """

    op: str
    group: str
    index: int
    ranks: tuple[int, ...]
    calls: Int64  # index into each rank's calls
    start_ns: Int64
    end_ns: Int64
    wait_ns: Int64
    waits_for: Int64
    bytes: int | None
    iteration: str | None
    basis: str
    last_rank: int
    first: bool  # the first of its rank after the profiler started: mostly start-up skew
    bubble: bool = False
    caused_by: Int64 = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    uncertainty_ns: int = 0

    @property
    def duration_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    @property
    def transfer_ns(self) -> Int64:
        return self.duration_ns - self.wait_ns

    @property
    def start_skew_ns(self) -> int | None:
        return None if self.basis == SHORTEST else int(self.start_ns.max() - self.start_ns.min())

    @property
    def end_skew_ns(self) -> int | None:
        return None if self.basis == SHORTEST else int(self.end_ns.max() - self.end_ns.min())

    @property
    def cost_ns(self) -> int:
        """The sum of what the other ranks waited for the last rank."""
        return int(self.wait_ns.sum())

    @property
    def delay_ns(self) -> int:
        """The time between the last rank and the one before it: the gain if the last came with the others."""
        if self.basis == SHORTEST:
            ordered = np.sort(self.duration_ns)
            return int(ordered[1] - ordered[0])
        ordered = np.sort(self.start_ns)
        return int(ordered[-1] - ordered[-2])
