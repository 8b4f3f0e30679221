"""A study's report as one HTML file that needs nothing else: no network, no scripts."""

from __future__ import annotations

from pathlib import Path

from wirecost.report.compression import compressions
from wirecost.report.figures import charts_of, to_svg
from wirecost.report.memory import peak_rows
from wirecost.report.profiled import profiled
from wirecost.report.study_report import EXPECTATION_TOLERANCE, StudyReport
from wirecost.study.store import StoreError
from wirecost.units import format_ns, format_rate_bps, format_size_bytes


def render_page(report: StudyReport) -> str:
    """The page. Everything that comes from a study's files is escaped."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("wirecost.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(ns=format_ns, rate=format_rate_bps, size=format_size_bytes)
    # The charts' library escapes the names that it draws.
    charts = [Markup(to_svg(chart)) for chart in charts_of(report).values()]  # noqa: S704
    return environment.get_template("study.html").render(
        report=report,
        charts=charts,
        tolerance=EXPECTATION_TOLERANCE,
        speed_ups=report.speed_ups(),
        expectations=report.expectations(),
        compressions=compressions(report),
        peaks=peak_rows(report),
        profiled=profiled(report),
    )


def write_page(report: StudyReport, path: Path) -> Path:
    """Raises StoreError if the file can't be written."""
    try:
        path.write_text(render_page(report), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: can't be written: {error.strerror}") from error
    return path
