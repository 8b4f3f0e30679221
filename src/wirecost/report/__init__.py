"""Tables, figures and pages from a study's results: one file for each output format."""

from wirecost.report.study_reader import read_report
from wirecost.report.study_report import StudyReport

__all__ = ["StudyReport", "read_report"]
