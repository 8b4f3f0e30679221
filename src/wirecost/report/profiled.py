"""Reports the hidden and exposed communication of the profiled windows."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.report.cells import Cell
from wirecost.report.study_report import StudyReport
from wirecost.study.summary import ProfileSummary


@dataclass(frozen=True)
class Profiled:
    """One run's profiled window."""

    cell: Cell
    profile: ProfileSummary

    @property
    def overlapped(self) -> str:
        return _percent(self.profile.overlapped)

    @property
    def exposed(self) -> str:
        return _percent(self.profile.exposed_comm)

    @property
    def overlap(self) -> str:
        return _percent(self.profile.overlap)


def profiled(report: StudyReport) -> list[Profiled]:
    """Returns the runs that have a profiled window."""
    return [Profiled(c, c.summary.profile) for c in report.cells if c.summary and c.summary.profile]


def _percent(share: float | None) -> str:
    return f"{share:.1%}" if share is not None else "unknown"
