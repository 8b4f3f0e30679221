"""Renders a study's report as one self-contained HTML file without scripts or external resources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wirecost.report import overview
from wirecost.report.cells import Scale
from wirecost.report.compression import compressions
from wirecost.report.figures import charts_of, to_svg
from wirecost.report.fractions import fraction_tables
from wirecost.report.largest_batch import largest_batches
from wirecost.report.memory import peak_rows
from wirecost.report.profiled import profiled
from wirecost.report.study_report import EXPECTATION_TOLERANCE, StudyReport
from wirecost.study.store import StoreError
from wirecost.units import format_ns, format_rate_bps, format_size_bytes

MOST_COLUMNS = 24
"""Most scales beside each other in one table. A table has only rows with at least one cell."""
MOST_ROWS = 100
"""Most rows of a table on a large study's page, so that a browser shows it quickly and a person can read it."""
MOST_SPEED_UPS = 1000
HIGHEST = 20


def render_page(report: StudyReport, *, full: bool = False) -> str:
    """Returns the HTML page. All text from a study's files is escaped.

    For a large study it holds an overview, every experiment's fraction (folded) and the most important rows of
    longer tables; with `full` it holds everything.
    """
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
    # The chart library escapes the names that it draws.
    charts = [Markup(to_svg(chart)) for chart in charts_of(report).values()]  # noqa: S704
    short = report.is_large and not full
    peaks, expectations = peak_rows(report), report.expectations()
    if short:
        peaks.sort(key=lambda row: (row.peak.out is None, -(row.peak.peak_bytes or 0)))
    return environment.get_template("study.html").render(
        report=report,
        short=short,
        most=MOST_ROWS if short else None,
        most_speed_ups=MOST_SPEED_UPS if short else None,
        charts=charts,
        tables={plan: fraction_tables(report, plan, _beside(report.scales(plan))) for plan in report.plans},
        dimensions=overview.dimensions(report) if short else [],
        cross=overview.cross(report, MOST_ROWS, MOST_ROWS) if short else None,
        highest=overview.highest(report, HIGHEST) if short else [],
        tolerance=EXPECTATION_TOLERANCE,
        links=report.links(),
        speed_ups=report.speed_ups(),
        speed_up_shares=overview.speed_up_shares(report) if short else [],
        held=sum(e.holds for e in expectations),
        measured=len(expectations),
        expectations=overview.deviating(expectations) if short else expectations,
        compressions=compressions(report),
        largest_batches=largest_batches(report),
        peaks=peaks,
        profiled=profiled(report),
        what_ifs=report.what_ifs,
        unfinished=report.unfinished(),
        diagnostics=report.diagnostics(),
    )


def _beside(scales: Sequence[Scale]) -> list[Sequence[Scale]]:
    return [scales[start : start + MOST_COLUMNS] for start in range(0, len(scales), MOST_COLUMNS)]


def write_page(report: StudyReport, path: Path, *, full: bool = False) -> Path:
    """Writes the HTML page. Raises StoreError if the file can't be written."""
    try:
        path.write_text(render_page(report, full=full), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: can't be written: {error.strerror}") from error
    return path
