"""Draws a sweep: the iteration time with its interval and the communication fraction over one axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wirecost.errors import SpecError

if TYPE_CHECKING:
    import altair as alt

    from wirecost.prediction.sweep import Point


def sweep_chart(points: Sequence[Point], axis: str, title: str) -> alt.HConcatChart:
    """Returns a chart of the iteration time with its interval and the communication fraction over the axis.

    Raises:
        SpecError: if there is nothing to draw.
    """
    import altair as alt

    rows = [p.row() for p in points if p.prediction is not None]
    if not rows:
        raise SpecError("nothing to plot: no value of the sweep can be")
    scale = {"bandwidth": 1e9}.get(axis, 1)
    for row in rows:
        row["x"] = row["value"] / scale
        row["memory"] = "fits" if row["fits"] else "out of memory"
    name = {"bandwidth": "bandwidth of a node, Gb/s"}.get(axis, axis.replace("_", " "))
    x = alt.X(
        "x:Q",
        title=name,
        scale=alt.Scale(type="log", base=2, nice=False) if len(rows) > 2 else alt.Undefined,
        # A log axis leaves out labels that aren't powers of its base, unless they come from an expression.
        axis=alt.Axis(
            values=sorted({row["x"] for row in rows}),
            labelExpr="format(datum.value, ',.6~g')",
            labelOverlap=True,
            labelFlush=False,
        ),
    )
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
    color = alt.Color(
        "memory:N", title=None, scale=alt.Scale(domain=["fits", "out of memory"], range=["#2a6f97", "#bc4b51"])
    )
    time = (
        base.mark_area(opacity=0.2, color="#2a6f97").encode(
            y=alt.Y("low_s:Q", title="predicted iteration time, s"), y2="high_s:Q"
        )
        + base.mark_line(color="#2a6f97").encode(y="iteration_s:Q")
        + base.mark_point(filled=True, size=50).encode(y="iteration_s:Q", color=color)
    )
    share = base.mark_line(color="#6a994e", point=True).encode(
        y=alt.Y("comm_fraction:Q", title="predicted comm fraction", scale=alt.Scale(domain=[0, 1]))
    )
    return alt.hconcat(
        time.properties(width=340, height=240), share.properties(width=340, height=240), title=title
    )


def write_sweep_figure(points: Sequence[Point], axis: str, title: str, path: Path) -> None:
    """Writes the chart of a sweep as PNG or SVG, according to the path's suffix.

    Raises:
        SpecError: if the suffix is another one, there is nothing to draw, or the file can't be written.
    """
    if path.suffix not in (".png", ".svg"):
        raise SpecError(f"{path}: a plot is a .png or .svg")
    from wirecost.report.rendering import render

    chart = sweep_chart(points, axis, title)
    try:
        path.write_bytes(render([(chart.to_json(), "png" if path.suffix == ".png" else "svg")])[0])
    except OSError as error:
        raise SpecError(f"{path}: can't be written: {error.strerror}") from error
