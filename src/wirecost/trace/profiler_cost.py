"""Computes the time that the profiler added to an iteration, from the job's step time without it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from wirecost.trace.compare_ranks import steady_iterations
from wirecost.trace.rank import RankTrace


class ProfilerCost(msgspec.Struct, frozen=True):
    """A traced iteration compared with the job's own step time.

    `traced_ns` is the mean iteration of the slowest rank, and `idle_ns` is the mean idle time in an iteration over
    the ranks. The profiler slows the host and not the device's kernels. So the added time (`added_ns`, negative if
    the traced iterations are shorter) is in the idle time and in the waiting of other ranks.
    """

    step_time_ns: int
    traced_ns: float
    added_ns: float
    idle_ns: float
    iterations: int

    @property
    def share(self) -> float:
        """The added time over the job's own step time."""
        return self.added_ns / self.step_time_ns

    @property
    def sentence(self) -> str:
        own = f"the job's own step {self.step_time_ns / 1e6:.2f} ms"
        times = f"A traced iteration takes {self.traced_ns / 1e6:.2f} ms, {own}"
        if self.added_ns < 0:
            return (
                f"{times}: {-self.share:.1%} less. The trace shows other steps than those that were measured, or "
                "its iterations miss a part of the step."
            )
        added = f"{times}: {self.added_ns / 1e6:.2f} ms ({self.share:.1%}) more"
        if self.added_ns > self.idle_ns:
            return (
                f"{added}, and the device idles {self.idle_ns / 1e6:.2f} ms of an iteration, so the profiler's "
                "overhead on the host is not all of it."
            )
        return (
            f"{added}, which the profiler and its overhead on the host add; at most that much of the "
            f"{self.idle_ns / 1e6:.2f} ms idle in an iteration is theirs."
        )


def profiler_cost(traces: Sequence[RankTrace], step_time_ns: int | None) -> ProfilerCost | None:
    """Returns the cost of the profiler; None without a step time or without iterations."""
    if step_time_ns is None:
        return None
    windows: dict[str, list[int]] = defaultdict(list)
    idle: list[int] = []
    for trace, steady in zip(traces, steady_iterations(traces), strict=True):
        for number in steady:
            iteration = trace.iterations[number]
            windows[iteration.window.name].append(iteration.parts.window_ns)
            idle.append(iteration.parts.idle_ns)
    if not windows:
        return None
    traced = statistics.fmean(max(times) for times in windows.values())
    return ProfilerCost(step_time_ns, traced, traced - step_time_ns, statistics.fmean(idle), len(windows))
