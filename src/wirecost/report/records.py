"""The row types of a study's report."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.breakdown import Ratio
from wirecost.diagnostics import Diagnostic
from wirecost.report.cells import Cell, Scale
from wirecost.units import format_rate_bps

EXPECTATION_TOLERANCE = 0.15
"""Relative deviation of a measured transfer from bytes / measured rate that the report accepts."""


@dataclass(frozen=True)
class Links:
    """The measured rates of a network over all its runs; None if not measured. `nominal_bps` is None without a cap
    and for a native network.
    """

    network: str
    emulated: bool
    nominal_bps: float | None
    slowest_bps: float | None
    fastest_bps: float | None
    mean_use_bps: float | None = None
    """Traffic of the busiest interface during the iterations of the run that used the link most."""
    peak_use_bps: float | None = None
    transports: tuple[str, ...] = ()
    """The transports in use according to NCCL's log; more than one if runs differ."""

    @property
    def transport(self) -> str:
        return ", ".join(self.transports) or "unknown"

    @property
    def use(self) -> str | None:
        """Returns the mean and peak use as text, as shares of the slowest measured rate if there is one."""
        if self.mean_use_bps is None or self.peak_use_bps is None:
            return None
        return f"mean {self._share(self.mean_use_bps)}, peak {self._share(self.peak_use_bps)}"

    def _share(self, used_bps: float) -> str:
        share = f" ({used_bps / self.slowest_bps:.0%})" if self.slowest_bps else ""
        return f"{format_rate_bps(used_bps, 3)}{share}"

    @property
    def nominal(self) -> str:
        if self.nominal_bps:
            return format_rate_bps(self.nominal_bps, 3)
        return "uncapped" if self.emulated else "unknown"


@dataclass(frozen=True)
class SpeedUp:
    """The speed-up of an iteration on `fast` over one on `slow`, everything else equal."""

    workload: str
    plan: str
    scale: Scale
    fast: str
    slow: str
    ratio: Ratio
    disturbed: tuple[str, ...] = ()
    """Codes of what disturbed one of the two experiments."""


@dataclass(frozen=True)
class Expectation:
    """The measured transfer of one all-reduce after backward (each rank's median over calls, averaged over ranks)
    and its expected value, bytes / measured link rate.
    """

    cell: Cell
    bytes_per_call: float
    measured_ns: float
    expected_ns: float
    calls: int

    @property
    def deviation(self) -> float:
        return self.measured_ns / self.expected_ns - 1

    @property
    def holds(self) -> bool:
        return abs(self.deviation) <= EXPECTATION_TOLERANCE


@dataclass(frozen=True)
class Benchmarked:
    """A network's all-reduce benchmark before training. `measured_Bps` is the largest message's bus bandwidth,
    `fitted_Bps` the limit for longer messages. Unknown values are None, with the reason in `reason`.
    """

    network: str
    hosts: int
    ranks: int
    latency_ns: float | None
    largest_bytes: int | None
    measured_Bps: float | None
    fitted_Bps: float | None
    left_out_error: float | None
    reason: str | None


@dataclass(frozen=True)
class Reported:
    """A diagnostic with the number of experiments that have it."""

    diagnostic: Diagnostic
    experiments: int


@dataclass(frozen=True)
class Unfinished:
    """Experiments (`what`) without a result, with the reason."""

    status: str
    what: str
    reason: str
    traceback: str | None = None
