"""Studies and their results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.api.view import ResultView, Rows
from wirecost.report import StudyReport, read_report
from wirecost.spec import Study

if TYPE_CHECKING:
    import altair


_MOST_LINES = 20
"""Experiments that the text of a study's results shows."""


class StudyResults(ResultView):
    """The results of a study: a row for each experiment.

    Attributes:
        report: the results as the reports use them.
        directory: where they lie.
    """

    def __init__(self, report: StudyReport, directory: Path) -> None:
        self.report = report
        self.directory = directory

    @property
    def tables(self) -> tuple[str, ...]:
        return ("experiments",)

    def _rows(self, table: str) -> Rows:
        from wirecost.report.data import rows

        return rows(self.report)

    def chart(self) -> altair.TopLevelMixin:
        """Returns communication as a fraction of the iteration, by workload, network and scale."""
        from wirecost.report.figures import fraction_chart

        return fraction_chart(self.report)

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as one HTML file.

        Raises:
            WirecostError: if the file can't be written.
        """
        from wirecost.report.page import write_page

        write_page(self.report, Path(path))

    def _headline(self) -> str:
        rows = self.rows()
        done = sum(row["status"] == "done" for row in rows)
        lines = [f"{self.report.name}: {done} of {len(rows)} experiments done, in {self.directory}"]
        for row in rows[:_MOST_LINES]:
            what = f"{row['workload']} on {row['network']}, {row['plan']}, <{row['ranks']}, {row['global_batch']}>"
            if row["iteration_ms"] is None:
                lines.append(f"{what}: {row['status']}")
            else:
                time = f"iteration {row['iteration_ms']:.1f} ms"
                lines.append(f"{what}: {time}, communication {_fraction(row)}")
        if len(rows) > _MOST_LINES:
            lines.append(f"{len(rows) - _MOST_LINES} more: .rows()")
        return "\n".join(lines)


def _fraction(row: Mapping[str, Any]) -> str:
    """Returns the communication fraction of a row in percent. It is an interval for some commands."""
    if row["comm_fraction"] is not None:
        return f"{row['comm_fraction']:.0%}"
    if row["comm_fraction_low"] is None:
        return "unknown"
    return f"{row['comm_fraction_low']:.0%} to {row['comm_fraction_high']:.0%}"


def read_study(directory: str | os.PathLike[str]) -> StudyResults:
    """Reads the results of a study.

    Raises:
        WirecostError: if the directory holds no results that can be used.
    """
    return StudyResults(read_report(Path(directory)), Path(directory))


def run_study(
    study: str | Path | Study,
    out: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    retry_failed: bool = False,
    repair: bool = False,
    budget_s: float | None = None,
) -> StudyResults:
    """Runs every experiment of a study, each in fresh processes over its own network, and returns the results.

    Args:
        study: a YAML file, the name of a study that ships, or a Study.
        out: directory of the results. The default is `wirecost-runs/NAME`.
        resume: go on where an earlier run stopped.
        retry_failed: with `resume`, run failed and skipped experiments again.
        repair: with `resume`, run experiments again whose results are damaged.
        budget_s: seconds for this run. Experiments that don't fit are left for another run with `resume`.

    Raises:
        WirecostError: if the study is invalid, can't run on this machine, or its results can't be stored.
    """
    from wirecost.study import Again
    from wirecost.study import run_study as run
    from wirecost.study.loading import load_study
    from wirecost.study.runner import default_out

    loaded = study if isinstance(study, Study) else load_study(str(study))
    directory = default_out(loaded) if out is None else Path(out)
    run(loaded, directory, resume=resume, again=Again(retry_failed, repair), budget_s=budget_s)
    return read_study(directory)
