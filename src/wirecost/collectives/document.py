"""A whole benchmark as one JSON document: what was asked, where, every row, the fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from wirecost.collectives.efficiency import Fitted
from wirecost.collectives.expectation import LinkShare
from wirecost.collectives.request import BenchRequest, Mode
from wirecost.collectives.result import BenchNetwork, Row


class FitEntry(BaseModel):
    """A fit, or why there is none (`refused`). Intervals cover 90 %; errors are measured / fitted - 1."""

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
    """`ended` says why a benchmark ended before all was measured; None if it didn't. `links` are the tables' best
    bandwidths beside what the links give."""

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
    return tuple(_entry(one) for one in fitted)


def _entry(one: Fitted) -> FitEntry:
    known: dict[str, Any] = {
        "collective": one.collective,
        "ranks": one.ranks,
        "mode": one.mode,
        "groups": one.groups,
        "refused": one.refusal,
    }
    if one.fit is not None:
        low, high = one.fit.slope_interval
        known |= {
            "latency_ns": one.fit.latency_ns,
            "latency_interval_ns": one.fit.latency_interval_ns,
            "bus_bandwidth_Bps": one.bus_bandwidth_Bps,
            "bus_bandwidth_interval_Bps": (one.factor * 1e9 / high, one.factor * 1e9 / low),
            "breaks_bytes": one.fit.curve.breaks,
            "sizes_bytes": one.fit.sizes,
            "residuals": one.fit.residuals,
            "left_out_errors": one.fit.left_out,
            "median_left_out_error": one.fit.error,
        }
    return FitEntry(**known)
