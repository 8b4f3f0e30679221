"""A whole benchmark as one JSON document: the request, the network, every row, the fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from wirecost.collectives.efficiency import Fitted
from wirecost.collectives.expectation import LinkShare
from wirecost.collectives.request import BenchRequest, Mode
from wirecost.collectives.result import BenchNetwork, Row


class FitEntry(BaseModel):
    """A fit, or the reason why there is none (`refused`).

    Intervals cover 90 %; errors are measured / fitted - 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    collective: str
    ranks: int
    mode: Mode
    groups: int
    refused: str | None
    latency_ns: float | None = None
    latency_interval_ns: tuple[float, float] | None = None
    bus_bandwidth_Bps: float | None = None
    bus_bandwidth_interval_Bps: tuple[float, float] | None = None
    breaks_bytes: tuple[float, ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    residuals: tuple[float, ...] = ()
    left_out_errors: tuple[float, ...] = ()
    median_left_out_error: float | None = None


class Document(BaseModel):
    """A benchmark's results. `ended` is the reason if the benchmark ended early, else None. `links` compares the
    tables' best bandwidths with those of the links.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    environment: dict[str, Any]
    request: BenchRequest
    network: BenchNetwork
    ended: str | None = None
    rows: tuple[Row, ...]
    fits: tuple[FitEntry, ...]
    links: tuple[LinkShare, ...] = ()


def fit_entries(fitted: Sequence[Fitted]) -> tuple[FitEntry, ...]:
    return tuple(_entry(fitted_series) for fitted_series in fitted)


def _entry(fitted_series: Fitted) -> FitEntry:
    known: dict[str, Any] = {
        "collective": fitted_series.collective,
        "ranks": fitted_series.ranks,
        "mode": fitted_series.mode,
        "groups": fitted_series.groups,
        "refused": fitted_series.refusal,
    }
    if fitted_series.fit is not None:
        low, high = fitted_series.fit.slope_interval
        known |= {
            "latency_ns": fitted_series.fit.latency_ns,
            "latency_interval_ns": fitted_series.fit.latency_interval_ns,
            "bus_bandwidth_Bps": fitted_series.bus_bandwidth_Bps,
            "bus_bandwidth_interval_Bps": (fitted_series.factor * 1e9 / high, fitted_series.factor * 1e9 / low),
            "breaks_bytes": fitted_series.fit.curve.breaks,
            "sizes_bytes": fitted_series.fit.sizes,
            "residuals": fitted_series.fit.residuals,
            "left_out_errors": fitted_series.fit.left_out,
            "median_left_out_error": fitted_series.fit.error,
        }
    return FitEntry(**known)
