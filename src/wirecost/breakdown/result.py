"""`Breakdown`, the result type of engine runs, imported traces and logs, and predictions."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from wirecost.breakdown import samples
from wirecost.breakdown.integers import Natural, Positive
from wirecost.breakdown.iteration import Iteration, Phase
from wirecost.breakdown.memory import PeakMemory, largest_peak
from wirecost.breakdown.profile import Profile
from wirecost.breakdown.shares import Share, share
from wirecost.breakdown.statistics import Spread
from wirecost.diagnostics import Diagnostic, diagnostics_of_warnings

SCHEMA_VERSION = 2
"""Version 1 has `warnings` of code and message instead of `diagnostics`; it is still read."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Source(StrEnum):
    """The source of a breakdown. Values of different sources never share an unlabelled column."""

    MEASURED = "measured"  # wirecost's own engine ran it
    IMPORTED = "imported"  # read from somebody's trace or log
    PREDICTED = "predicted"  # the cost model's answer


class Collective(_Frozen):
    """One collective (or one kind of it) in one process group, summed over its calls on one rank.

    `bytes` is the total size S of measurement.md summed over calls; None if unknown, never 0. `duration_ns` is the
    duration of the kernels or calls: `wait_ns` before the last rank's arrival and `transfer_ns` after it.
    `transfer_median_ns` is the median over calls if they are alike. `expected_ns` is the transfer time from bytes
    and the measured link rate.
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


class Interval(_Frozen):
    """A prediction's interval for the iteration time at `level` (0.9: nine in ten measurements fall inside)."""

    level: float = Field(gt=0, lt=1)
    low_ns: Natural
    high_ns: Natural


class NetworkRecord(_Frozen):
    """The network of a result. `transport` is the one reported in use, and `measured_rate_bps` was measured after
    shaping; a requested value is called nominal. `mean_use_bps` and `peak_use_bps` are the rates of the busiest
    interface in one direction during the iterations, by its counters; the peak is over one sampling interval.
    """

    name: str
    emulated: bool
    transport: str | None = None
    nominal_rate_bps: float | None = Field(default=None, gt=0)
    measured_rate_bps: float | None = Field(default=None, gt=0)
    mean_use_bps: float | None = Field(default=None, ge=0)
    peak_use_bps: float | None = Field(default=None, ge=0)
    tcp_retransmitted: float | None = Field(default=None, ge=0)


class Breakdown(_Frozen):
    """The breakdown of an iteration's time, with every raw sample."""

    schema_version: Literal[2] = SCHEMA_VERSION
    source: Source
    title: str
    world_size: Positive
    iterations: tuple[Iteration, ...]
    collectives: tuple[Collective, ...] = ()
    network: NetworkRecord | None = None
    peak_memory: tuple[PeakMemory, ...] = ()  # of each rank with a known peak; one kind for all
    profile: Profile | None = None  # a window beside the measured iterations
    tokens_per_iteration: Positive | None = None
    interval: Interval | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    details: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_version_1(cls, data: Any) -> Any:
        return upgraded(data)

    @model_validator(mode="after")
    def _ranks_exist(self) -> Breakdown:
        check_ranks(self)
        return self

    def by_iteration(self) -> dict[str, list[Iteration]]:
        """Returns the iterations of all ranks by name, in order of first appearance."""
        return samples.by_iteration(self.iterations)

    def iteration_times_ns(self) -> list[int]:
        """Returns each iteration's time in ns: the slowest rank's window."""
        return samples.iteration_times_ns(self.by_iteration().values())

    def iteration_ns(self) -> Spread | None:
        return Spread.of(self.iteration_times_ns())

    def comm_fraction(self) -> Spread | None:
        """Returns exposed communication / iteration time over iterations, each with the mean over its ranks."""
        return self.part_share("exposed_comm_ns")

    def part_share(self, part: str) -> Spread | None:
        """Returns a part's share of the window over iterations, each with the mean over its ranks. `part` is a
        field of `Parts`.
        """
        return samples.part_share(self.by_iteration().values(), part)

    def share(self, part: str) -> Share | None:
        """Returns the share of an iteration that a part takes, as every command prints it; None if unknown. `part`
        is a field of `Parts`. If iterations were only timed, it is that of the profiled window.
        """
        return share(self.by_iteration().values(), self.profile, part)

    def phase_ns(self, phase: Phase) -> Spread | None:
        """Returns a phase's time in ns over iterations, each with the mean over its ranks; None if no iteration
        records it.
        """
        return samples.phase_ns(self.by_iteration().values(), phase)

    def expert_imbalance(self) -> Spread | None:
        """Returns the largest load of a rank's experts over the mean; None without expert parallelism."""
        return samples.expert_imbalance(self.by_iteration().values())

    def largest_peak(self) -> PeakMemory | None:
        """Returns the largest peak memory of all ranks; None unless every rank's peak is known."""
        return largest_peak(self.peak_memory, self.world_size)

    def tokens_per_s(self) -> float | None:
        return samples.tokens_per_s(self.tokens_per_iteration, self.iteration_ns())


def upgraded(data: Any) -> Any:
    """Returns a breakdown's plain data in the current version of the schema; anything else unchanged.

    Raises:
        ValueError: if a breakdown of version 1 has warnings that version 1 does not allow.
    """
    if not isinstance(data, dict) or "diagnostics" in data:
        return data
    version = data.get("schema_version", 1 if "warnings" in data else SCHEMA_VERSION)
    if type(version) is not int or version != 1:
        return data
    unchanged = {key: value for key, value in data.items() if key != "warnings"}
    diagnostics = diagnostics_of_warnings(data.get("warnings", ()))
    return unchanged | {"schema_version": SCHEMA_VERSION, "diagnostics": diagnostics}


def check_ranks(breakdown: Breakdown) -> None:
    """Raises ValueError if a rank lies outside the world, or the peaks of memory are of several kinds."""
    profiled = breakdown.profile.iterations if breakdown.profile else ()
    world_size = breakdown.world_size
    over = {i.rank for i in (*breakdown.iterations, *breakdown.peak_memory, *profiled) if i.rank >= world_size}
    if over:
        raise ValueError(f"rank {min(over)} is outside a world of {world_size}")
    if len({p.kind for p in breakdown.peak_memory}) > 1:
        raise ValueError("peak_memory: of more than one kind, so the largest means nothing")
