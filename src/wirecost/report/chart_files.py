"""Writes charts as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wirecost.report.rendering import render
from wirecost.study.store import StoreError


def write_charts(charts: dict[str, Any], folder: Path) -> list[Path]:
    """Writes each chart as NAME.png and NAME.svg into a folder; returns the paths.

    Raises:
        StoreError: if the folder can't be written.
    """
    written = []
    try:
        if charts:
            folder.mkdir(parents=True, exist_ok=True)
        # The charts satisfy Vega-Lite's schema whatever the data. Validation would take as long as drawing.
        specs = [chart.to_json(validate=False) for chart in charts.values()]
        drawn = render([(spec, kind) for spec in specs for kind in ("svg", "png")])
        for number, name in enumerate(charts):
            png, svg = folder / f"{name}.png", folder / f"{name}.svg"
            svg.write_bytes(drawn[2 * number])
            png.write_bytes(drawn[2 * number + 1])
            written += [png, svg]
    except OSError as error:
        raise StoreError(
            f"{folder}: can't be written: {error.strerror}; --figures names another folder"
        ) from error
    return written
