"""Aggregates a large study's cells by network, plan, scale and workload."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from wirecost import breakdown
from wirecost.breakdown import Ratio
from wirecost.report.cells import Cell
from wirecost.report.records import Expectation
from wirecost.report.study_report import StudyReport

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """The communication fractions of the cells that share one property. Each cell contributes its median,
    and one whose fraction is an interval contributes nothing.

    The average is the mean: a median over cells of several scales jumps when one of them lacks a result. It is
    None if no cell has a result. `cells` counts all cells, `done` those with a result.
    """

    name: str
    mean: float | None
    lowest: float | None
    highest: float | None
    cells: int
    done: int


@dataclass(frozen=True)
class Dimension:
    """One way to group a study's cells: by `network`, `plan`, `scale` or `workload`."""

    name: str
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Cross:
    """Cells grouped by network (down) and another dimension (across); None for a group without cells."""

    across: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Share | None, ...]], ...]
    more_rows: int = 0
    more_columns: int = 0


@dataclass(frozen=True)
class SpeedUpShare:
    """The speed-ups of one network over another: their geometric mean and range.

    `sure` counts those whose interval lies above 1.
    """

    fast: str
    slow: str
    mean: float
    lowest: float
    highest: float
    cells: int
    sure: int


def _keys(report: StudyReport) -> dict[str, tuple[Callable[[Cell], str], Sequence[str]]]:
    """Returns for each dimension the function that gives a cell's key, and the keys in the report's order."""
    scales = sorted({c.scale for c in report.cells})
    return {
        "network": (lambda c: c.network, report.networks),
        "plan": (lambda c: c.plan, report.plans),
        "scale": (lambda c: c.scale.label, [s.label for s in scales]),
        "workload": (lambda c: c.workload, report.workloads),
    }


def dimensions(report: StudyReport) -> list[Dimension]:
    """Returns all cells as one group, then the cells grouped by each dimension in which they differ."""
    every = Dimension("all", (_share("experiments", report.cells),))
    return [every] + [
        Dimension(name, tuple(_share(value, cells) for value, cells in _sorted(report.cells, key, order).items()))
        for name, (key, order) in _keys(report).items()
        if len(order) > 1
    ]


def cross(report: StudyReport, most_rows: int, most_columns: int) -> Cross | None:
    """Returns the cells by network and plan (with a single plan by scale, else by workload); None if only networks
    differ.

    The number of rows and columns is limited, because there may be as many of both as there are cells.
    """
    keys = _keys(report)
    across = next((name for name in ("plan", "scale", "workload") if len(keys[name][1]) > 1), None)
    if across is None or len(report.networks) < 2:
        return None
    key, columns = keys[across]
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in report.cells:
        groups.setdefault((cell.network, key(cell)), []).append(cell)
    shown = columns[:most_columns]
    rows = []
    for network in report.networks[:most_rows]:
        shares = (_share(c, groups[network, c]) if (network, c) in groups else None for c in shown)
        rows.append((network, tuple(shares)))
    return Cross(across, tuple(shown), tuple(rows), len(report.networks) - len(rows), len(columns) - len(shown))


def highest(report: StudyReport, count: int) -> list[tuple[Cell, breakdown.Share]]:
    """Returns the cells with the highest communication fractions, the highest first."""
    known = ((c, fraction) for c in report.cells if (fraction := c.exposed) is not None)
    return heapq.nlargest(count, known, key=lambda pair: pair[1].low)


def speed_up_shares(report: StudyReport) -> list[SpeedUpShare]:
    """Returns the speed-ups by pair of networks, in the report's order."""
    groups: dict[tuple[str, str], list[Ratio]] = {}
    for s in report.speed_ups():
        groups.setdefault((s.fast, s.slow), []).append(s.ratio)
    rows = []
    for (fast, slow), ratios in groups.items():
        values = [ratio.value for ratio in ratios]
        mean = statistics.geometric_mean(values) if min(values) > 0 else 0.0
        sure = sum(ratio.low > 1 for ratio in ratios)
        rows.append(SpeedUpShare(fast, slow, mean, min(values), max(values), len(values), sure))
    order = {network: place for place, network in enumerate(report.networks)}
    return sorted(rows, key=lambda r: (order[r.fast], order[r.slow]))


def deviating(expectations: Iterable[Expectation]) -> list[Expectation]:
    """Returns the expectations that don't hold, those with the largest deviation first."""
    return sorted((e for e in expectations if not e.holds), key=lambda e: -abs(e.deviation))


def _sorted(cells: Iterable[Cell], key: Callable[[Cell], T], order: Iterable[T]) -> dict[T, list[Cell]]:
    groups: dict[T, list[Cell]] = {value: [] for value in order}
    for cell in cells:
        groups[key(cell)].append(cell)
    return groups


def _share(name: str, cells: Sequence[Cell]) -> Share:
    fractions = [c.exposed.point for c in cells if c.exposed and c.exposed.point is not None]
    return Share(
        name=name,
        mean=statistics.fmean(fractions) if fractions else None,
        lowest=min(fractions, default=None),
        highest=max(fractions, default=None),
        cells=len(cells),
        done=len(fractions),
    )
