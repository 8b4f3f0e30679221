"""What the iterations of all ranks say of communication: the exposed part, the wait, and the rank that is late."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.live.late import Iteration, late_rank
from wirecost.live.marks import IterationTimes


@dataclass(frozen=True)
class RankTimes:
    """Medians of one rank over a few iterations in seconds. `tail_s` is None if unknown."""

    iteration_s: float
    tail_s: float | None

    @staticmethod
    def of(times: Sequence[IterationTimes]) -> RankTimes | None:
        """Returns the medians of iterations, or None without any. The tail is known if it is in most of them."""
        if not times:
            return None
        tails = [t.tail_s for t in times if t.tail_s is not None]
        # The first iterations of a watch have none.
        tail_s = statistics.median(tails) if 2 * len(tails) > len(times) else None
        return RankTimes(statistics.median(t.iteration_s for t in times), tail_s)


@dataclass(frozen=True)
class Window:
    """A few iterations of all ranks.

    Attributes:
        iteration_s: the slowest rank's iteration.
        exposed: share of exposed communication, the mean over ranks. None if unknown.
        wait: share in which the ranks wait for the last one, the mean over ranks. None if unknown.
        late_rank: the rank that the others wait for, or None if none is proven to be late.
        device, use_bps: the busiest network interface of the first rank's host and its rate in bits per second.
    """

    iteration_s: float
    exposed: float | None
    wait: float | None
    late_rank: int | None
    device: str | None = None
    use_bps: float | None = None

    @property
    def line(self) -> str:
        """The window in one line."""
        parts = [f"{self.iteration_s * 1e3:.4g} ms"]
        if self.exposed is None:
            parts.append("exposed communication unknown")
        else:
            waiting = ""
            if self.wait is not None and self.late_rank is not None:
                of_exposed = min(1.0, self.wait / self.exposed) if self.exposed else 0.0
                waiting = f", {of_exposed:.0%} of it waiting for rank {self.late_rank}"
            parts.append(f"{self.exposed:.0%} exposed communication{waiting}")
        if self.device is not None and self.use_bps is not None:
            parts.append(f"{self.device} {_rate(self.use_bps)}")
        return ", ".join(parts)

    def scalars(self) -> dict[str, float]:
        """Returns the known numbers by name."""
        values = {
            "wirecost/iteration_ms": self.iteration_s * 1e3,
            "wirecost/exposed_fraction": self.exposed,
            "wirecost/wait_fraction": self.wait,
            "wirecost/late_rank": self.late_rank,
            "wirecost/network_Gbps": None if self.use_bps is None else self.use_bps * 1e-9,
        }
        return {name: float(value) for name, value in values.items() if value is not None}


def summarise(iterations: Sequence[Iteration]) -> Window | None:
    """Returns the window of some iterations of all ranks, or None without iterations.

    Ranks leave a collective together. So the rank that waits least after its last gradient came last, and what
    another one waits longer is its wait for that rank.
    """
    ranks = [times for rank in zip(*iterations, strict=True) if (times := RankTimes.of(rank)) is not None]
    if not ranks:
        return None
    iteration_s = max(r.iteration_s for r in ranks)
    tails = [r.tail_s for r in ranks if r.tail_s is not None]
    if len(tails) != len(ranks) or iteration_s <= 0:
        return Window(iteration_s, None, None, None)
    least = min(tails)
    exposed = statistics.fmean(tails) / iteration_s
    wait = statistics.fmean(tail - least for tail in tails) / iteration_s
    return Window(iteration_s, exposed, wait, late_rank(iterations))


def _rate(bps: float) -> str:
    for unit, size in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if bps >= size:
            return f"{bps / size:.3g} {unit}"
    return f"{bps:.0f} b/s"
