"""Derives a cluster's network efficiency from benchmark rows and writes it to the cluster's YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from wirecost.collectives.fit import Fit, FitRefusedError, fit
from wirecost.collectives.operations import BARRIER, bus_factor
from wirecost.collectives.request import Mode
from wirecost.collectives.result import Row
from wirecost.errors import SpecError
from wirecost.reading import read_text
from wirecost.spec.cluster import Cluster
from wirecost.spec.efficiency import CollectiveEfficiency, Interval, NetworkEfficiency, RankLatency, Segment
from wirecost.spec.yaml import MAX_BYTES, load, parse_yaml, validate

MIN_RANK_COUNTS = 3
"""Least number of rank counts for a fit: a line over the number of ranks has two parameters."""
KEY = "network_efficiency"


@dataclass(frozen=True)
class Fitted:
    """The fit of one collective over groups of one size; `refusal` is the reason if there is none."""

    collective: str
    ranks: int
    mode: Mode
    groups: int
    fit: Fit | None
    refusal: str | None
    points: tuple[tuple[int, float], ...]
    """The fitted points: size in bytes and time in ns."""
    left_aside: int
    """Number of rows that were left out because the shaper's bucket distorts them."""

    @property
    def bus_bandwidth_Bps(self) -> float | None:
        return None if self.fit is None else self.factor * 1e9 / self.fit.slope_ns_per_byte

    @property
    def factor(self) -> float:
        return bus_factor(self.collective, self.ranks) or 1.0


def fit_rows(
    rows: Sequence[Row], *, groups: int = 1, medians: bool = False, link_bps: float | None = None
) -> list[Fitted]:
    """Fits each collective and number of ranks. Uses in-place rows if there are any, because training works in
    place.

    Args:
        medians: fit each size's median over single messages, where known, instead of the stream's time, which on
            processors includes other work.
        link_bps: the most that each rank's own link carries, in bits per second. It bounds the asymptotic bus
            bandwidth, even if a shaper's bucket let the measured messages pass faster.
    """
    fits = []
    for collective, ranks in dict.fromkeys((r.collective, r.ranks) for r in rows if r.collective != BARRIER):
        mine = [r for r in rows if (r.collective, r.ranks) == (collective, ranks)]
        mode = Mode.IN_PLACE if any(r.mode is Mode.IN_PLACE for r in mine) else Mode.OUT_OF_PLACE
        chosen = [r for r in mine if r.mode is mode]
        usable = [r for r in chosen if not r.unshaped]
        points = tuple((r.size_bytes, r.p50_ns if medians and r.p50_ns else r.time_ns) for r in usable)
        try:
            factor = bus_factor(collective, ranks) or 1.0
            least_slope = factor * 8e9 / link_bps if link_bps else 0.0
            sizes, times = [size for size, _ in points], [time for _, time in points]
            result, refusal = fit(sizes, times, least_slope=least_slope), None
        except FitRefusedError as error:
            result, refusal = None, str(error)
        aside = len(chosen) - len(usable)
        fits.append(Fitted(collective, ranks, mode, groups, result, refusal, points, aside))
    return fits


def efficiency(
    fitted: Sequence[Fitted],
    *,
    source: str,
    hosts: int | None = None,
    network: str | None = None,
    emulated: bool | None = None,
) -> NetworkEfficiency:
    """Returns the fits as the network efficiency of a cluster's description; refused fits are left out."""
    entries = []
    for series in fitted:
        if series.fit is None or series.bus_bandwidth_Bps is None:
            continue
        low, high = series.fit.slope_interval
        entries.append(
            CollectiveEfficiency(
                collective=series.collective,
                ranks=series.ranks,
                hosts=hosts,
                groups=series.groups,
                smallest_bytes=series.fit.sizes[0],
                largest_bytes=series.fit.sizes[-1],
                segments=tuple(
                    Segment(from_bytes=round(at), intercept_ns=intercept, bandwidth_Bps=1e9 / slope)
                    for at, intercept, slope in series.fit.curve.pieces()
                ),
                latency_ns=series.fit.latency_ns,
                latency_interval_ns=Interval(
                    low=series.fit.latency_interval_ns[0], high=series.fit.latency_interval_ns[1]
                ),
                bus_bandwidth_Bps=series.bus_bandwidth_Bps,
                bus_bandwidth_interval_Bps=Interval(
                    low=series.factor * 1e9 / high, high=series.factor * 1e9 / low
                ),
                error=series.fit.error,
                points=len(series.fit.sizes),
                source=source,
            )
        )
    return NetworkEfficiency(
        network=network,
        emulated=emulated,
        collectives=tuple(entries),
        latency_over_ranks=tuple(_over_ranks(fitted)),
    )


def _over_ranks(fitted: Sequence[Fitted]) -> list[RankLatency]:
    efficiencies = []
    for collective in dict.fromkeys(f.collective for f in fitted):
        latencies = {f.ranks: f.fit.latency_ns for f in fitted if f.collective == collective and f.fit}
        try:
            efficiencies.append(latency_over_ranks(collective, latencies))
        except FitRefusedError:
            continue
    return efficiencies


def latency_over_ranks(collective: str, latencies_ns: dict[int, float]) -> RankLatency:
    """Fits latency over the number of ranks, as a ring's steps or a tree's levels, whichever has the smaller
    error.

    Raises:
        FitRefusedError: for fewer than three different numbers of ranks.
    """
    import numpy as np

    if len(latencies_ns) < MIN_RANK_COUNTS:
        raise FitRefusedError(
            f"no latency over ranks from {len(latencies_ns)} group sizes: at least {MIN_RANK_COUNTS} are needed"
        )
    ranks = np.array(sorted(latencies_ns), float)
    times = np.array([latencies_ns[int(n)] for n in ranks])
    best: RankLatency | None = None
    for shape, steps in (("ring", ranks - 1), ("tree", np.log2(ranks))):
        slope = max(0.0, float(np.polyfit(steps, times, 1)[0]))
        base = float(np.mean(times - slope * steps))
        error = float(np.median(np.abs((base + slope * steps) / times - 1)))
        if best is None or error < best.error:
            best = RankLatency(
                collective=collective,
                shape=shape,
                base_ns=base,
                step_ns=slope,
                error=error,
                rank_counts=tuple(int(n) for n in ranks),
            )
    assert best is not None and math.isfinite(best.error)
    return best


def write_to_cluster(path: Path, new_efficiency: NetworkEfficiency) -> None:
    """Writes a network efficiency into a cluster's YAML file. Entries of other collectives, comments and the rest
    of the file stay unchanged.

    Raises:
        SpecError: if the file describes no cluster or can't be written.
    """
    cluster = load(Cluster, path)
    if not new_efficiency.collectives:
        raise SpecError(f"{path}: nothing to write: no fit succeeded")
    merged = (cluster.network_efficiency or NetworkEfficiency()).merged(new_efficiency)
    block = yaml.safe_dump(
        {KEY: merged.model_dump(mode="json", exclude_none=True)}, sort_keys=False, allow_unicode=True, width=100
    )
    text = read_text(path, most_bytes=MAX_BYTES, what="cluster", pipes=False, error=SpecError)
    # A top-level key's block continues until the next line that isn't indented.
    text = re.sub(
        rf"^{KEY}:.*\n(?:[ \t-].*\n|\s*\n)*", "", text + ("" if text.endswith("\n") else "\n"), flags=re.M
    )
    text = text.rstrip("\n") + "\n" + block
    validate(Cluster, parse_yaml(text, str(path)), str(path))
    try:
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.rename(path)
    except OSError as error:
        raise SpecError(f"{path}: can't be written: {error.strerror}") from error
