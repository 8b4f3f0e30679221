"""Draws the figures of a study that has too many experiments to draw each: means over experiments, a panel for
each plan.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wirecost.breakdown import Spread
from wirecost.report.cells import Cell
from wirecost.report.study_report import StudyReport

if TYPE_CHECKING:
    import altair as alt

MOST_PANELS = 12
MOST_BARS = 24
PAGE_WIDTH = 900
"""Width in pixels of all panels in a row."""
GAP = 20


@dataclass(frozen=True)
class Panels:
    """The experiments that are drawn, by panel and network."""

    kind: str
    groups: dict[tuple[str, str], list[Cell]]
    names: tuple[str, ...]
    networks: tuple[str, ...]
    left_out: str
    """Text that describes what is not drawn; empty if everything is drawn."""

    @property
    def longest(self) -> int:
        return max((len(name) for name in self.networks), default=0)


def panels_of(report: StudyReport) -> Panels:
    """Returns a panel for each plan; with a single plan, a panel for each scale or workload."""
    scales = [s.label for s in sorted({c.scale for c in report.cells})]
    kinds: list[tuple[str, list[str], Callable[[Cell], str]]] = [
        ("plan", list(report.plans), lambda c: c.plan),
        ("scale", scales, lambda c: c.scale.label),
        ("workload", list(report.workloads), lambda c: c.workload),
    ]
    kind, names, key = next((k for k in kinds if len(k[1]) > 1), kinds[0])
    shown, networks = set(names[:MOST_PANELS]), set(report.networks[:MOST_BARS])
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in report.cells:
        if cell.summary and key(cell) in shown and cell.network in networks:
            groups.setdefault((key(cell), cell.network), []).append(cell)
    hidden = [
        f"{count} more {what}"
        for count, what in (
            (len(names) - len(shown), f"{kind}s"),
            (len(report.networks) - len(networks), "networks"),
        )
        if count
    ]
    left_out = f"; {' and '.join(hidden)} not drawn" if hidden else ""
    return Panels(kind, groups, tuple(names[:MOST_PANELS]), report.networks[:MOST_BARS], left_out)


def breakdown_overview(
    report: StudyReport, names: dict[Any, str], colours: dict[str, str]
) -> alt.Chart | alt.FacetChart:
    """Returns stacked bars of the phases' shares: the mean over experiments of their median times, as shares of
    the sum.

    Args:
        names: the phases by the names that the chart shows.
        colours: the colours of those names, in the order of the legend.
    """
    import altair as alt

    panels = panels_of(report)
    data = []
    for (panel, network), cells in panels.groups.items():
        shares: dict[str, float] = {}
        known = [s.phases_ns for c in cells if (s := c.summary) and any(p.median for p in s.phases_ns.values())]
        for phases in known:
            total = sum(spread.median for spread in phases.values())
            for phase, spread in phases.items():
                name = names[phase]
                shares[name] = shares.get(name, 0.0) + spread.median / total / len(known)
        data += [
            {"panel": panel, "network": network, "phase": name, "share": share, "n": len(known)}
            for name, share in shares.items()
        ]
    shown = [name for name in colours if any(row["phase"] == name for row in data)]
    order = {name: place for place, name in enumerate(shown)}
    bars = (
        alt.Chart(
            alt.Data(values=[row | {"order": order[row["phase"]]} for row in data]),
            width=_width(panels),
            height=150,
        )
        .mark_bar()
        .encode(
            x=_networks(panels),
            y=alt.Y(
                "sum(share):Q",
                title="share of the iteration",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1], nice=False),
            ),
            color=alt.Color(
                "phase:N", scale=alt.Scale(domain=shown, range=[colours[n] for n in shown]), title="phase"
            ),
            order="order:Q",
            tooltip=["network:N", "phase:N", alt.Tooltip("share:Q", format=".1%"), "n:Q"],
        )
    )
    return _faceted(bars, report, panels, "means over experiments of each one's medians")


def fraction_overview(report: StudyReport) -> alt.FacetChart:
    """Returns a chart of the experiments' communication fractions: quartiles as a bar with the mean, the range as
    a line.
    """
    import altair as alt

    panels = panels_of(report)
    data = []
    for (panel, network), cells in panels.groups.items():
        fractions = [c.exposed.point for c in cells if c.exposed and c.exposed.point is not None]
        spread = Spread.of(fractions)
        if spread is not None:
            data.append(
                {
                    "panel": panel, "network": network, "low": min(fractions), "q1": spread.q1,
                    "mean": statistics.fmean(fractions), "q3": spread.q3, "high": max(fractions), "n": spread.n,
                }
            )  # fmt: skip
    x = _networks(panels)
    y = alt.Y("low:Q", scale=alt.Scale(domain=[0, 1]), title="communication / iteration")
    base = alt.Chart(alt.Data(values=data), width=_width(panels), height=150)
    tooltip = [
        "network:N",
        *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("low", "q1", "mean", "q3", "high")),
    ]
    layers = alt.layer(
        base.mark_rule(color="#5f6b76").encode(x=x, y=y, y2="high:Q"),
        base.mark_bar(size=12, color="#d55e00").encode(x=x, y="q1:Q", y2="q3:Q", tooltip=[*tooltip, "n:Q"]),
        base.mark_tick(size=12, color="#1b1f23", thickness=2).encode(x=x, y="mean:Q"),
    )
    return _faceted(layers, report, panels, "over experiments: range, quartiles and mean of their medians")


def _networks(panels: Panels) -> Any:
    import altair as alt

    return alt.X("network:N", sort=list(panels.networks), title=None, axis=alt.Axis(labelAngle=-40))


def _width(panels: Panels) -> int:
    return max(90, 22 * len(panels.networks))


def _faceted(chart: Any, report: StudyReport, panels: Panels, what: str) -> Any:
    import altair as alt

    per_line = max(1, PAGE_WIDTH // (_width(panels) + GAP))
    lines = math.ceil(len(panels.names) / per_line)
    emulated = "networks emulated on one machine; " if report.emulated else ""
    subtitle = f"{emulated}measured; {what}{panels.left_out}"
    facet = alt.Facet("panel:N", sort=list(panels.names), title=None)
    title = alt.TitleParams(report.name, subtitle=subtitle, anchor="start")
    return chart.facet(facet=facet, columns=math.ceil(len(panels.names) / lines)).properties(title=title)
