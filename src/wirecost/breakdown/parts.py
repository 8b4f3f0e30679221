"""The five parts of an iteration. Every instant of a rank's window belongs to exactly one part."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, model_validator

from wirecost.breakdown.integers import Natural
from wirecost.breakdown.intervals import Intervals, clip, intersect, subtract, total_ns, union


class Parts(BaseModel):
    """The device time line of one rank over one window, split in five; integer nanoseconds.

    `compute_only` a compute kernel runs and no communication does; `overlapped` both run; `exposed_comm`
    communication runs and compute does not; `exposed_memory` only copies or fills run; `idle` nothing runs.
    `unknown` belongs to one of them, and it isn't known to which: the whole window of an iteration that was only
    timed. The parts sum to the window exactly.

    Raises:
        pydantic.ValidationError: if a part is negative or the parts don't sum to the window.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    window_ns: Natural
    compute_only_ns: Natural
    overlapped_ns: Natural
    exposed_comm_ns: Natural
    exposed_memory_ns: Natural
    idle_ns: Natural
    unknown_ns: Natural = 0

    @model_validator(mode="after")
    def _sums_to_window(self) -> Parts:
        check_sum(self)
        return self

    @property
    def known(self) -> bool:
        """Returns whether every instant of the window has its part."""
        return self.unknown_ns == 0

    @property
    def compute_ns(self) -> int:
        return self.compute_only_ns + self.overlapped_ns

    @property
    def comm_ns(self) -> int:
        return self.overlapped_ns + self.exposed_comm_ns

    @property
    def comm_fraction(self) -> float | None:
        """Returns exposed communication / window; None for an empty window, and if parts are unknown."""
        return self.exposed_comm_ns / self.window_ns if self.window_ns and self.known else None

    @property
    def comm_busy(self) -> float | None:
        """Returns all communication, hidden or exposed, / window; None for an empty window, and if parts are
        unknown."""
        return self.comm_ns / self.window_ns if self.window_ns and self.known else None

    @property
    def overlap(self) -> float | None:
        """Returns the share of communication that compute hides; None without communication, and if parts are
        unknown."""
        return self.overlapped_ns / self.comm_ns if self.comm_ns and self.known else None


def unknown_parts(window_ns: int) -> Parts:
    """Returns the parts of an iteration of which only the time is known, in nanoseconds."""
    return Parts(
        window_ns=window_ns,
        compute_only_ns=0,
        overlapped_ns=0,
        exposed_comm_ns=0,
        exposed_memory_ns=0,
        idle_ns=0,
        unknown_ns=window_ns,
    )


def check_sum(parts: Parts) -> None:
    """Raises ValueError unless the five parts and what is unknown sum to the window."""
    total_ns = (
        parts.compute_only_ns
        + parts.overlapped_ns
        + parts.exposed_comm_ns
        + parts.exposed_memory_ns
        + parts.idle_ns
        + parts.unknown_ns
    )
    if total_ns != parts.window_ns:
        raise ValueError(f"the five parts sum to {total_ns} ns, not to the window's {parts.window_ns} ns")


def split_window(start_ns: int, end_ns: int, *, compute: Intervals, comm: Intervals, memory: Intervals) -> Parts:
    """Splits [start_ns, end_ns) by three merged interval sets (see `intervals`), exactly.

    Raises:
        ValueError: if the window ends before it starts.
    """
    if end_ns < start_ns:
        raise ValueError(f"a window can't end ({end_ns} ns) before it starts ({start_ns} ns)")
    compute, comm, memory = (clip(s, start_ns, end_ns) for s in (compute, comm, memory))
    busy = union(compute, comm)
    overlapped = total_ns(intersect(compute, comm))
    exposed_memory = total_ns(subtract(memory, busy))
    return Parts(
        window_ns=end_ns - start_ns,
        compute_only_ns=total_ns(compute) - overlapped,
        overlapped_ns=overlapped,
        exposed_comm_ns=total_ns(comm) - overlapped,
        exposed_memory_ns=exposed_memory,
        idle_ns=end_ns - start_ns - total_ns(busy) - exposed_memory,
    )
