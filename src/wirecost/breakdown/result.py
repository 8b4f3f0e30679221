"""`Breakdown`: the one result type. Engine runs measure it, traces and logs are imported into it, the model
predicts it; studies, comparisons, plans and reports only read it."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from wirecost.breakdown.integers import Natural, Positive
from wirecost.breakdown.iteration import Iteration, Phase
from wirecost.breakdown.memory import PeakMemory
from wirecost.breakdown.profile import Profile
from wirecost.breakdown.statistics import Spread

SCHEMA_VERSION = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Source(StrEnum):
    """How a breakdown came about. Values of different sources never share an unlabelled column."""

    MEASURED = "measured"  # wirecost's own engine ran it
    IMPORTED = "imported"  # read from somebody's trace or log
    PREDICTED = "predicted"  # the cost model's answer


class Collective(_Frozen):
    """One collective (or one kind of it) in one process group, summed over its calls on one rank.

    `bytes` is the total size S of measurement.md summed over calls; None where it isn't known, never 0.
    `duration_ns` is what a kernel or call took; of that `wait_ns` went by before the last rank arrived and
    `transfer_ns` after. `transfer_median_ns` is the median over the calls where they are alike.
    `expected_ns` is the transfer that bytes and the measured link rate give.
    """

    rank: Natural | None = None
    op: str
    group: str
    group_size: Positive | None = None
    count: Positive
    bytes: Natural | None = None
    duration_ns: Natural
    wait_ns: Natural | None = None
    transfer_ns: Natural | None = None
    transfer_median_ns: Natural | None = None
    busbw_Bps: float | None = None
    expected_ns: Natural | None = None


class ResultWarning(_Frozen):
    """A typed remark on a result: what is doubtful about it, and what to do."""

    code: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    message: str


class Interval(_Frozen):
    """A prediction's interval for the iteration time at `level` (0.9: nine in ten measurements fall inside)."""

    level: float = Field(gt=0, lt=1)
    low_ns: Natural
    high_ns: Natural


class NetworkRecord(_Frozen):
    """Which network a result stands for. Labels are earned: `transport` is the one reported in use, and
    `measured_rate_bps` was measured after shaping; what was only asked for is called nominal. `mean_use_bps` and
    `peak_use_bps` are what the busiest interface moved in one direction during the iterations, by its counters;
    the peak is over one sampling interval."""

    name: str
    emulated: bool
    transport: str | None = None
    nominal_rate_bps: float | None = Field(default=None, gt=0)
    measured_rate_bps: float | None = Field(default=None, gt=0)
    mean_use_bps: float | None = Field(default=None, ge=0)
    peak_use_bps: float | None = Field(default=None, ge=0)
    tcp_retransmitted: float | None = Field(default=None, ge=0)


class Breakdown(_Frozen):
    """What an iteration's time goes to, with every raw sample kept."""

    schema_version: Literal[1] = SCHEMA_VERSION
    source: Source
    title: str
    world_size: Positive
    iterations: tuple[Iteration, ...]
    collectives: tuple[Collective, ...] = ()
    network: NetworkRecord | None = None
    peak_memory: tuple[PeakMemory, ...] = ()  # of each rank where it is known; one kind for all
    profile: Profile | None = None  # a window beside the measured iterations
    tokens_per_iteration: Positive | None = None
    interval: Interval | None = None
    warnings: tuple[ResultWarning, ...] = ()
    details: dict[str, Any] = {}

    @model_validator(mode="after")
    def _ranks_exist(self) -> Breakdown:
        profiled = self.profile.iterations if self.profile else ()
        over = {i.rank for i in (*self.iterations, *self.peak_memory, *profiled) if i.rank >= self.world_size}
        if over:
            raise ValueError(f"rank {min(over)} is outside a world of {self.world_size}")
        if len({p.kind for p in self.peak_memory}) > 1:
            raise ValueError("peak_memory: of more than one kind, so the largest means nothing")
        return self

    def by_iteration(self) -> dict[str, list[Iteration]]:
        """Iterations of all ranks by name, in order of first appearance."""
        found: dict[str, list[Iteration]] = defaultdict(list)
        for iteration in self.iterations:
            found[iteration.name].append(iteration)
        return dict(found)

    def iteration_times_ns(self) -> list[int]:
        """Each iteration's time: the slowest rank's window."""
        return [max(i.parts.window_ns for i in group) for group in self.by_iteration().values()]

    def iteration_ns(self) -> Spread | None:
        return Spread.of(self.iteration_times_ns())

    def comm_fraction(self) -> Spread | None:
        """Exposed communication over iteration time; an iteration counts with the mean over its ranks."""
        return self.part_share("exposed_comm_ns")

    def part_share(self, part: str) -> Spread | None:
        """A part's share of the window, the mean over ranks of each iteration. `part` is a field of `Parts`."""
        shares = []
        for group in self.by_iteration().values():
            known = [getattr(i.parts, part) / i.parts.window_ns for i in group if i.parts.window_ns]
            if known:
                shares.append(sum(known) / len(known))
        return Spread.of(shares)

    def phase_ns(self, phase: Phase) -> Spread | None:
        """A phase's time, the mean over ranks of each iteration; None where no iteration records it."""
        times = []
        for group in self.by_iteration().values():
            known = [i.phases[phase] for i in group if phase in i.phases]
            if known:
                times.append(sum(known) / len(known))
        return Spread.of(times)

    def largest_peak(self) -> PeakMemory | None:
        """The rank's that held most memory at once; None unless every rank's is known."""
        known = {p.rank for p in self.peak_memory}
        return max(self.peak_memory, key=lambda p: p.peak_bytes) if len(known) == self.world_size else None

    def tokens_per_s(self) -> float | None:
        time = self.iteration_ns()
        if time is None or not time.median or self.tokens_per_iteration is None:
            return None
        return self.tokens_per_iteration / (time.median * 1e-9)
