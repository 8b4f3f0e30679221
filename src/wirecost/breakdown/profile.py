"""A sampled profiler window: a few iterations of a run, seen by another instrument than the measured ones."""

from __future__ import annotations

import statistics
from typing import Literal

from pydantic import BaseModel, ConfigDict

from wirecost.breakdown.integers import Natural, Positive
from wirecost.breakdown.iteration import Iteration


class UnknownProfile(BaseModel):
    """Why a rank's window says nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rank: Natural
    reason: str


class Profile(BaseModel):
    """Iterations after the measured ones, under a profiler that costs time itself: for shares, not for times.

    `iterations` are of the ranks whose trace was whole; every other rank is in `unknown`, with the reason.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    source: Literal["torch.profiler"] = "torch.profiler"
    asked_iterations: Positive
    iterations: tuple[Iteration, ...] = ()
    unknown: tuple[UnknownProfile, ...] = ()

    @property
    def reason(self) -> str | None:
        """Why there is no answer, in words; None where there is one. One rank unknown leaves the run's unknown:
        the ranks differ."""
        if not self.unknown:
            return None
        ranks = ", ".join(str(u.rank) for u in self.unknown)
        return f"unknown: {self.unknown[0].reason} (rank{'s' * (len(self.unknown) > 1)} {ranks})"

    def share(self, part: str) -> float | None:
        """A part's share of the window, the median over iterations and ranks; None where it isn't known. `part` is
        a field of `Parts`."""
        if self.unknown:
            return None
        known = [getattr(i.parts, part) / i.parts.window_ns for i in self.iterations if i.parts.window_ns]
        return statistics.median(known) if known else None

    def overlap(self) -> float | None:
        """The share of communication that compute hides, of all iterations and ranks together; None where it isn't
        known, or nothing communicates."""
        comm = sum(i.parts.comm_ns for i in self.iterations)
        if self.unknown or not comm:
            return None
        return sum(i.parts.overlapped_ns for i in self.iterations) / comm
