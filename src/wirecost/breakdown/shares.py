"""The share of an iteration that a part takes, such as the exposed share of communication.

Every command that prints a share calls `share`. docs/explanation/measurement.md has the definition.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.breakdown import samples
from wirecost.breakdown.profile import Profile
from wirecost.breakdown.samples import Groups

PROFILER_TOLERANCE = 0.05
"""Largest difference between an iteration under the profiler and one without it, as a fraction, at which a
share of the one is taken for that of the other. Beyond it the share is an interval."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of an iteration as an interval from `low` to `high`, over `n` iterations or repeats."""

    low: float
    high: float
    n: int

    @property
    def point(self) -> float | None:
        """Returns the share if it is a single number, else None."""
        return self.low if self.low == self.high else None

    def text(self, decimals: int = 1) -> str:
        """Returns the share in percent, such as `29.1 %` or `29.1-34.7 %`."""
        low, high = (f"{100 * bound:.{decimals}f}" for bound in (self.low, self.high))
        return f"{low} %" if low == high else f"{low}-{high} %"

    def fraction_text(self) -> str:
        """Returns the share as a fraction with two decimals, such as `0.29` or `0.29-0.35`."""
        low, high = f"{self.low:.2f}", f"{self.high:.2f}"
        return low if low == high else f"{low}-{high}"


def share(groups: Groups, profile: Profile | None, part: str) -> Share | None:
    """Returns the share of an iteration that a part takes. None if it is unknown.

    The share in one iteration is the mean over its ranks of part / window, and the result is the median over the
    iterations. If iterations were only timed, those of the profiled window take their place. The profiler
    lengthens computation, so that the share in its window is one end of an interval. The other end is the same
    time in an iteration without the profiler.

    Args:
        groups: the iterations by name, each of all ranks.
        profile: the profiled window, or None without one.
        part: a field of `Parts`, such as `exposed_comm_ns`.
    """
    if (measured := samples.part_share(groups, part)) is not None:
        return Share(measured.median, measured.median, measured.n)
    times_ns = samples.iteration_times_ns(groups)
    if profile is None or not times_ns or (profiled := profile.part_share(part)) is None:
        return None
    slowdown = profile.iteration_ns() / statistics.median(times_ns) if statistics.median(times_ns) else 1.0
    if abs(slowdown - 1) <= PROFILER_TOLERANCE:
        return Share(profiled.median, profiled.median, profiled.n)
    other = min(1.0, profiled.median * slowdown)
    return Share(min(profiled.median, other), max(profiled.median, other), profiled.n)


def over_repeats(shares: Sequence[Share | None]) -> Share | None:
    """Returns the share over the repeats of an experiment: the medians of the ends of the known ones. None if none
    is known."""
    known = [each for each in shares if each is not None]
    if not known:
        return None
    low, high = (statistics.median(ends) for ends in ([s.low for s in known], [s.high for s in known]))
    return Share(low, high, len(known))


def divided(exposed: Share | None, profile: Profile | None) -> tuple[Share, Share] | None:
    """Returns the transfer and the wait in an exposed share of the profiled window. None if they are unknown.

    They divide the exposed share in the ratio of their times in all profiled iterations and ranks, so that they
    sum to it. A pipeline's bubble counts as wait.
    """
    if exposed is None or profile is None or not profile.comm or any(c.unknown_ns for c in profile.comm):
        return None
    transfer_ns = sum(c.transfer_ns for c in profile.comm)
    total_ns = transfer_ns + sum(c.wait_ns + c.bubble_ns for c in profile.comm)
    ratio = transfer_ns / total_ns if total_ns else 1.0
    low, high = exposed.low * ratio, exposed.high * ratio
    return Share(low, high, exposed.n), Share(exposed.low - low, exposed.high - high, exposed.n)
