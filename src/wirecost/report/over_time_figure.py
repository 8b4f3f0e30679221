"""Draws the network over time: the rates that each host receives and sends, the iterations, and their pauses."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from wirecost.study.over_time import NetworkOverTime, Series

if TYPE_CHECKING:
    from wirecost.report.cells import Cell, Scale
    from wirecost.report.study_report import StudyReport

MOST_DEVICES = 4
"""Most panels of a row. On a ring all hosts look alike."""
MOST_ROWS, MOST_ROWS_OF_LARGE = 24, 12
"""Most rows of a figure. Drawing one takes as long as reading a thousand results."""
MOST_STEPS = 1000
MOST_ITERATIONS = 150
"""Most marks of iterations in a panel. More would merge into a grey area."""
COLOURS = {"received": "#0072b2", "sent": "#d55e00"}  # The palette of Okabe and Ito
PAUSE = "#777777"
WIDTH, HEIGHT = 640, 110
LABEL_SHARE = 0.15
"""Width of a pause's label, as a share of the panel's width."""


@dataclass(frozen=True)
class Row:
    """One run. `link_bps` is the measured rate of the link; None if it wasn't measured."""

    label: str
    over_time: NetworkOverTime
    link_bps: float | None = None


def study_rows(report: StudyReport) -> tuple[list[Row], str | None]:
    """Returns one row for each workload, plan and network, from the largest scale that has counters.

    There are at most `MOST_ROWS` rows (`MOST_ROWS_OF_LARGE` for a large study), from the first workloads and
    plans. The second value describes what was left out, None if nothing was. A run with unreadable counters is
    left out with a DamagedResultWarning.
    """
    groups: dict[tuple[str, str], list[tuple[Scale, list[Cell]]]] = {}
    for (plan, workload, scale), cells in report.by_scale.items():
        groups.setdefault((plan, workload), []).append((scale, cells))
    rows: list[Row] = []
    most = MOST_ROWS_OF_LARGE if report.is_large else MOST_ROWS
    for number, ((plan, workload), scales) in enumerate(groups.items()):
        free_rows = most - len(rows)
        if free_rows <= 0:
            return rows, f"{len(groups) - number} more pairs of workload and plan are not drawn"
        for scale, cells in sorted(scales, key=lambda pair: (-pair[0].ranks, pair[0])):
            name = f"{workload}, {plan}, {scale.label}"
            counted = list(islice(_counted(report, name, cells), free_rows + 1))
            if len(counted) > free_rows and rows:
                return rows, f"{len(groups) - number} more pairs of workload and plan are not drawn"
            if len(counted) > free_rows:
                return counted[:free_rows], "more networks are not drawn"
            if counted:
                rows += counted
                break
    return rows, None


def _counted(report: StudyReport, name: str, cells: Sequence[Cell]) -> Iterator[Row]:
    """Yields the runs that have network counters."""
    for cell in cells:
        over_time = _over_time(cell) if cell.summary else None
        if over_time is not None and over_time.series:
            known = cell.summary.network if cell.summary else None
            label = f"{name} on {report.network_label(cell.network)}"
            yield Row(label, over_time, known.measured_rate_bps if known else None)


def _over_time(cell: Cell) -> NetworkOverTime | None:
    from wirecost.study.over_time import read_over_time
    from wirecost.study.store import DamagedResultWarning, StoreError

    try:
        return read_over_time(cell.result.directory)
    except StoreError as error:
        warnings.warn(f"not drawn: {error}", DamagedResultWarning, stacklevel=2)
        return None


def over_time_chart(rows: Sequence[Row], title: str, left_out: str | None = None) -> Any:
    """Returns a chart with a line of panels for each row and a panel for each device.

    Args:
        left_out: text that describes what is not drawn.
    """
    import altair as alt

    lines = []
    for row in rows:
        series = row.over_time.series[:MOST_DEVICES]
        hidden = len(row.over_time.series) - len(series)
        more = f"; {hidden} more devices not shown" if hidden else ""
        first, last = _shown_ns(row.over_time)
        drawn = [(s, edges := _edges(s, first, last), s.rates_Bps(edges)) for s in series]
        # Space above for the labels of pauses.
        top_Gbps = 1.2 * max(
            [8e-9 * float(r.max()) for *_, rates in drawn for r in rates] + [(row.link_bps or 0) / 1e9]
        )
        marks = _marks(row, first, last)
        panels = [
            _panel(marks, first, last, *panel, top_Gbps).properties(width=WIDTH / len(series)) for panel in drawn
        ]
        lines.append(
            alt.hconcat(*panels, spacing=12).properties(
                title=alt.TitleParams(row.label + more, anchor="start", fontSize=11)
            )
        )
    legend = ["counted by the interfaces"]
    if any(row.over_time.iterations for row in rows):
        legend.append("thin lines: iterations begin")
    if any(row.over_time.events for row in rows):
        legend.append("shaded: between iterations")
    if any(row.link_bps for row in rows):
        legend.append("dashed: the link as measured")
    subtitle = ["; ".join(legend), *([left_out] if left_out else [])]
    return alt.vconcat(*lines, spacing=14).properties(
        title=alt.TitleParams(
            f"Network over time, {title}", subtitle=subtitle if left_out else subtitle[0], anchor="start"
        )
    )


def _marks(row: Row, first: int, last: int) -> list[Any]:
    """Returns the marks that all panels of a row share: pauses, starts of iterations, the link's rate."""
    import altair as alt

    def at(t_ns: int) -> float:
        return (t_ns - first) * 1e-9

    marks = []
    if row.over_time.events:
        pauses = [{"s": at(e.start_ns), "end": at(e.end_ns), "what": str(e.kind)} for e in row.over_time.events]
        shaded = alt.Chart(alt.Data(values=pauses)).mark_rect(color=PAUSE, opacity=0.22)
        marks.append(shaded.encode(x=_seconds(first, last), x2="end:Q"))
        for (align, line), labels in pause_labels(pauses, at(last)).items():
            text = alt.Chart(alt.Data(values=labels)).mark_text(
                color=PAUSE, align=align, baseline="top", dx=2 if align == "left" else -2, fontSize=8
            )
            marks.append(text.encode(x=_seconds(first, last), y=alt.value(2 + 9 * line), text="what:N"))
    every = -(-len(row.over_time.iterations) // MOST_ITERATIONS)
    if every:
        begins = [{"s": at(i.start_ns)} for i in row.over_time.iterations[::every]]
        rules = alt.Chart(alt.Data(values=begins)).mark_rule(color="#b8bec4", strokeWidth=0.7)
        marks.append(rules.encode(x=_seconds(first, last)))
    if row.link_bps:
        link = alt.Chart(alt.Data(values=[{"Gbps": row.link_bps * 1e-9}]))
        marks.append(link.mark_rule(color="#1b1f23", strokeWidth=0.7, strokeDash=[4, 3]).encode(y="Gbps:Q"))
    return marks


Place = tuple[Literal["left", "right"], int]
"""The alignment of a label's text and the number of its line."""


def pause_labels(pauses: Sequence[dict[str, Any]], whole_s: float) -> dict[Place, list[dict[str, Any]]]:
    """Returns the labels of pauses by place. A label starts where its pause starts or, near the right edge, ends
    where it ends. Labels alternate between two lines. Pauses that are too close for labels of their own share one.
    """
    together: list[dict[str, Any]] = []
    for pause in sorted(pauses, key=lambda label: label["s"]):
        if together and pause["s"] - together[-1]["s"] < LABEL_SHARE * whole_s:
            names = together[-1]["what"].split(", ")
            together[-1]["end"] = pause["end"]
            together[-1]["what"] = ", ".join(dict.fromkeys([*names, pause["what"]]))
        else:
            together.append(dict(pause))
    labels: dict[Place, list[dict[str, Any]]] = {}
    for number, label in enumerate(together):
        right = label["s"] > (1 - 2 * LABEL_SHARE) * whole_s
        place: Place = ("right" if right else "left", number % 2)
        labels.setdefault(place, []).append({"s": label["end"] if right else label["s"], "what": label["what"]})
    return labels


def _panel(
    marks: list[Any], first: int, last: int, series: Series, edges: Any, rates: Any, top_Gbps: float
) -> Any:
    import altair as alt

    values = [
        {"s": float(edge - first) * 1e-9, "Gbps": float(rate) * 8e-9, "direction": direction}
        for direction, of in zip(COLOURS, rates, strict=True)
        for edge, rate in zip(edges, [*of, of[-1]], strict=True)
    ]
    colours = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    lines = (
        # A tuple isn't copied when the panel is combined with others.
        alt.Chart(alt.Data(values=tuple(values)))
        .mark_line(interpolate="step-after", strokeWidth=1.2, opacity=0.85)
        .encode(
            x=_seconds(first, last),
            y=alt.Y("Gbps:Q", title="Gb/s", scale=alt.Scale(domain=[0, top_Gbps], nice=False)),
            color=alt.Color("direction:N", title=None, scale=colours),
        )
    )
    caption = alt.TitleParams(f"{series.device} ({series.kind})", fontSize=10, fontWeight="normal", anchor="start")
    return alt.layer(*marks, lines).properties(height=HEIGHT, title=caption)


def _seconds(first: int, last: int) -> Any:
    import altair as alt

    scale = alt.Scale(domain=[0, (last - first) * 1e-9], nice=False)
    return alt.X("s:Q", title="s", scale=scale, axis=alt.Axis(grid=False))


def _shown_ns(over_time: NetworkOverTime) -> tuple[int, int]:
    """Returns the shown time span: from the first iteration to the last one or to the last pause after it. Without
    iterations it is the whole recording. The start of the processes is left out because it often takes longer than
    the run.
    """
    spans = [(s.start_ns, s.end_ns) for s in (*over_time.iterations, *over_time.events)]
    if not spans:
        return over_time.start_ns, over_time.end_ns
    return min(start for start, _ in spans), max(end for _, end in spans)


def _edges(series: Series, first: int, last: int) -> Any:
    """Returns the times between which rates are drawn: the samples' times if they are few, else even steps."""
    inside = series.t_ns[(series.t_ns > first) & (series.t_ns < last)]
    if len(inside) < MOST_STEPS:
        return np.unique(np.array([first, *inside, last], dtype=float))
    return np.linspace(first, last, MOST_STEPS)


def write_recording_figure(recording: Path, folder: Path) -> list[Path]:
    """Draws a recording of `wirecost monitor --out` as .png and .svg with the recording's name; returns the paths.

    Raises:
        WirecostError: if the recording can't be read or shows no traffic.
        StoreError: if the folder can't be written.
    """
    from wirecost.counters.monitor import read_recording
    from wirecost.errors import WirecostError
    from wirecost.report.chart_files import write_charts
    from wirecost.study.over_time import series_of

    series = series_of(read_recording(recording))
    if not series:
        raise WirecostError(f"{recording}: no device in it moved a MiB, so there is nothing to draw")
    over_time = NetworkOverTime(series, (), ())
    return write_charts(
        {recording.stem: over_time_chart([Row(recording.name, over_time)], recording.name)}, folder
    )
