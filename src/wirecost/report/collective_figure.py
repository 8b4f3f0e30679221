"""Draws the measured bus bandwidth over message size with the fitted curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirecost.collectives.efficiency import Fitted
from wirecost.errors import SpecError
from wirecost.report.rendering import render

STEPS = 200
# The palette of Okabe and Ito, whose colours are distinguishable with colour blindness.
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]


def bandwidth_chart(fitted: Sequence[Fitted], title: str) -> Any:
    """Returns a chart of the measured points and fitted lines; both axes are logarithmic."""
    import altair as alt
    import numpy as np

    points: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for fitted_series in fitted:
        name = f"{fitted_series.collective}, {fitted_series.ranks} ranks"
        points += [
            {"series": name, "size": size, "busbw": size * fitted_series.factor / time_ns}
            for size, time_ns in fitted_series.points
        ]
        if fitted_series.fit is not None:
            for size in np.geomspace(fitted_series.fit.sizes[0], fitted_series.fit.sizes[-1], STEPS):
                busbw = size * fitted_series.factor / float(fitted_series.fit.curve(float(size)))
                curves.append({"series": name, "size": float(size), "busbw": busbw})
    label = (
        "datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : datum.value >= 1048576 ? "
        "datum.value / 1048576 + ' MiB' : datum.value >= 1024 ? datum.value / 1024 + ' KiB' : datum.value + ' B'"
    )
    x = alt.X(
        "size:Q",
        scale=alt.Scale(type="log", base=2, nice=False),
        title="message size",
        axis=alt.Axis(labelExpr=label, labelOverlap=True, tickCount=12),
    )
    y = alt.Y("busbw:Q", scale=alt.Scale(type="log", base=10), title="bus bandwidth (GB/s)")
    names = list(dict.fromkeys(p["series"] for p in points))
    colour = alt.Color("series:N", scale=alt.Scale(domain=names, range=PALETTE), title=None)
    chart = alt.layer(
        alt.Chart(alt.Data(values=curves)).mark_line(strokeWidth=2).encode(x=x, y=y, color=colour),
        alt.Chart(alt.Data(values=points))
        .mark_point(filled=True, size=40, opacity=1)
        .encode(x=x, y=y, color=colour),
    )
    subtitle = ["points measured, lines fitted", title]
    return chart.properties(
        width=560, height=320, title=alt.TitleParams("Bus bandwidth", subtitle=subtitle, anchor="start")
    )


def write_bandwidth_figure(fitted: Sequence[Fitted], title: str, path: Path) -> None:
    """Writes the chart as .png or .svg, according to the path's suffix.

    Raises:
        SpecError: if it can't be written.
    """
    spec = bandwidth_chart(fitted, title).to_json()
    try:
        path.write_bytes(render([(spec, "svg" if path.suffix == ".svg" else "png")])[0])
    except OSError as error:
        raise SpecError(f"{path}: can't be written: {error.strerror}") from error
