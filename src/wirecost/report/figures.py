"""Draws a study's figures: the phases of an iteration, the communication fraction, the network over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.breakdown import Phase
from wirecost.report.chart_files import write_charts
from wirecost.report.over_time_figure import over_time_chart, study_rows
from wirecost.report.overview_figures import breakdown_overview, fraction_overview
from wirecost.report.rendering import render
from wirecost.report.study_report import StudyReport

if TYPE_CHECKING:
    import altair as alt

# The palette of Okabe and Ito, distinguishable with colour blindness. Only communication has a warm colour.
COLOURS = {
    "data": "#999999",
    "forward": "#56b4e9",
    "backward": "#0072b2",
    "gradient sync": "#d55e00",
    "parameter gather": "#e69f00",
    "pipeline": "#cc79a7",
    "embedding sync": "#f0e442",
    "tensor parallel": "#e6ab02",
    "context parallel": "#7570b3",
    "optimizer": "#009e73",
    "checkpoint": "#666666",
    "validation": "#444444",
    "other": "#cccccc",
}
SHOWN_AS = {phase: "pipeline" if phase.startswith("pipeline") else str(phase) for phase in Phase} | {
    Phase.GRAD_SYNC: "gradient sync",
    Phase.PARAM_GATHER: "parameter gather",
    Phase.EMBEDDING_SYNC: "embedding sync",
    Phase.TENSOR_PARALLEL: "tensor parallel",
    Phase.CONTEXT_PARALLEL: "context parallel",
    Phase.EXPERT_DISPATCH: "expert dispatch",
    Phase.EXPERT_COMBINE: "expert combine",
}
MOST_PANELS = 60
"""Most panels of a figure with one panel for each workload and scale. Beyond it, experiments are aggregated."""


def breakdown_chart(report: StudyReport) -> alt.Chart | alt.FacetChart:
    """Returns stacked bars of the phases' median times: a bar for each network, a panel for each workload and
    scale.
    """
    import altair as alt

    data, phases = [], report.phases()
    for cell in report.cells:
        if cell.summary is None:
            continue
        for order, phase in enumerate(phases):
            spent = cell.summary.phases_ns.get(phase)
            if spent is None:
                continue
            place = _place(report, cell)
            data.append(place | {"phase": SHOWN_AS[phase], "ms": spent.median * 1e-6, "order": order})
    shown = [name for name in COLOURS if any(row["phase"] == name for row in data)]
    bars = (
        alt.Chart(alt.Data(values=data), width=150, height=180)
        .mark_bar()
        .encode(
            x=alt.X("network:N", sort=list(report.networks), title=None, axis=alt.Axis(labelAngle=-30)),
            y=alt.Y("sum(ms):Q", title="median time per iteration (ms)"),
            color=alt.Color(
                "phase:N", scale=alt.Scale(domain=shown, range=[COLOURS[n] for n in shown]), title="phase"
            ),
            order="order:Q",
            tooltip=["network:N", "phase:N", alt.Tooltip("ms:Q", format=".1f")],
        )
    )
    return _panels(bars, report, data).resolve_scale(y="independent").properties(title=_title(report))


def fraction_chart(report: StudyReport) -> alt.FacetChart:
    """Returns the communication fraction with its quartiles, or its interval for a command, in the same panels as
    `breakdown_chart`."""
    import altair as alt

    data = [
        _place(report, cell)
        | {"fraction": f.low, "label": f.fraction_text()}
        | ({"q1": q.q1, "q3": q.q3} if (q := cell.comm_fraction) else {"q1": f.low, "q3": f.high})
        for cell in report.cells
        if (f := cell.exposed) is not None
    ]
    x = alt.X("network:N", sort=list(report.networks), title=None, axis=alt.Axis(labelAngle=-30))
    y = alt.Y("fraction:Q", scale=alt.Scale(domain=[0, 1]), title="communication / iteration")
    base = alt.Chart(alt.Data(values=data), width=150, height=150)
    colour = alt.value(COLOURS["gradient sync"])
    layers = alt.layer(
        base.mark_bar().encode(
            x=x, y=y, color=colour, tooltip=["network:N", alt.Tooltip("fraction:Q", format=".3f")]
        ),
        base.mark_rule(strokeWidth=2).encode(x=x, y="q1:Q", y2="q3:Q"),
        base.mark_text(dy=-8).encode(x=x, y="q3:Q", text="label:N"),
    )
    return _panels(layers, report, data).properties(title=_title(report))


def _place(report: StudyReport, cell: Any) -> dict[str, str]:
    workload = f"{cell.workload}, {cell.plan}" if len(report.plans) > 1 else cell.workload
    return {"network": cell.network, "workload": workload, "scale": cell.scale.label}


def _panels(chart: Any, report: StudyReport, data: list[dict[str, Any]]) -> Any:
    import altair as alt

    scales = [s.label for s in sorted({c.scale for c in report.cells})]
    rows = list(dict.fromkeys(row["workload"] for row in data))
    return chart.facet(
        row=alt.Row("workload:N", sort=rows, title=None),
        column=alt.Column("scale:N", sort=scales, title=None),
    )


def _title(report: StudyReport) -> Any:
    import altair as alt

    subtitle = "networks emulated on one machine; measured" if report.emulated else "measured"
    return alt.TitleParams(report.name, subtitle=subtitle, anchor="start")


def to_svg(chart: Any) -> str:
    # The charts satisfy Vega-Lite's schema whatever the data. Validation would take as long as drawing.
    return render([(chart.to_json(validate=False), "svg")])[0].decode()


def charts_of(report: StudyReport) -> dict[str, Any]:
    """Returns every figure of a report by its name; empty without results. The network over time is included if
    counters were recorded.

    The drawing time is bounded: the experiments of a large study are aggregated.
    """
    if not any(c.summary for c in report.cells):
        return {}
    if _is_drawn_together(report):
        charts: dict[str, Any] = {
            "breakdown": breakdown_overview(report, SHOWN_AS, COLOURS),
            "comm_fraction": fraction_overview(report),
        }
    else:
        charts = {"breakdown": breakdown_chart(report), "comm_fraction": fraction_chart(report)}
    # Commands have no phases, and without a profile no known fraction.
    if not report.phases():
        del charts["breakdown"]
    if all(c.exposed is None for c in report.cells):
        del charts["comm_fraction"]
    rows, left_out = study_rows(report)
    if rows:
        charts["network_over_time"] = over_time_chart(rows, report.name, left_out)
    return charts


def _is_drawn_together(report: StudyReport) -> bool:
    rows = {(c.workload, c.plan) for c in report.cells}
    return report.is_large or len(rows) * len({c.scale for c in report.cells}) > MOST_PANELS


def write_figures(report: StudyReport, folder: Path) -> list[Path]:
    """Writes the report's figures as .png and .svg into a folder; returns the paths.

    Raises:
        StoreError: if the folder can't be written.
    """
    return write_charts(charts_of(report), folder)
