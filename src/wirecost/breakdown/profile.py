"""A profiled window: a few iterations of a run, recorded by a profiler after the measured iterations."""

from __future__ import annotations

import statistics
from typing import Literal

from pydantic import BaseModel, ConfigDict

from wirecost.breakdown import samples
from wirecost.breakdown.integers import Natural, Positive
from wirecost.breakdown.iteration import Iteration
from wirecost.breakdown.statistics import Spread


class UnknownProfile(BaseModel):
    """A rank whose window is unknown, with the reason."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rank: Natural
    reason: str


class ProfiledComm(BaseModel):
    """The exposed communication of one rank in one profiled iteration, in nanoseconds.

    `transfer_ns` data moves; `wait_ns` the rank waits for one that is late; `bubble_ns` a pipeline's stage
    waits for its neighbour; `unknown_ns` isn't matched over the ranks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rank: Natural
    name: str
    transfer_ns: Natural
    wait_ns: Natural
    bubble_ns: Natural
    unknown_ns: Natural


class Profile(BaseModel):
    """Profiled iterations after the measured ones. The profiler takes time, so that shares are valid and times
    aren't.

    `iterations` are those of the ranks with a complete trace; every other rank is in `unknown` with the reason.
    `comm` says what the exposed communication of each of them consists of, where the traces of all ranks tell.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    source: Literal["torch.profiler"] = "torch.profiler"
    asked_iterations: Positive
    iterations: tuple[Iteration, ...] = ()
    comm: tuple[ProfiledComm, ...] = ()
    unknown: tuple[UnknownProfile, ...] = ()

    @property
    def reason(self) -> str | None:
        """Returns the reason why the shares are unknown; None if they are known. They are unknown if one rank is,
        because ranks differ.
        """
        if not self.unknown:
            return None
        ranks = ", ".join(str(u.rank) for u in self.unknown)
        return f"unknown: {self.unknown[0].reason} (rank{'s' * (len(self.unknown) > 1)} {ranks})"

    def part_share(self, part: str) -> Spread | None:
        """Returns a part's share of the window over iterations, each with the mean over its ranks; None if
        unknown. `part` is a field of `Parts`.
        """
        if self.unknown:
            return None
        return samples.part_share(samples.by_iteration(self.iterations).values(), part)

    def iteration_ns(self) -> float:
        """Returns the median time of a profiled iteration in ns, each with its slowest rank.

        Raises:
            statistics.StatisticsError: without iterations.
        """
        return statistics.median(samples.iteration_times_ns(samples.by_iteration(self.iterations).values()))

    def overlap(self) -> float | None:
        """Returns the share of communication that compute hides, over all iterations and ranks; None if unknown or
        without communication.
        """
        comm = sum(i.parts.comm_ns for i in self.iterations)
        if self.unknown or not comm:
            return None
        return sum(i.parts.overlapped_ns for i in self.iterations) / comm
