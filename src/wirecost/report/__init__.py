"""Tables, figures and pages from a study's results: one file for each output format."""

from wirecost.report.study_report import StudyReport, read_report

__all__ = ["StudyReport", "read_report"]
