"""Codes of stored results: stores, reports, predictions of studies."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.RESULTS, meaning, remedy)


KINDS = (
    _kind(
        "damaged_result",
        Severity.WARNING,
        "A file of a result is missing, has changed since it was written, or can't be read. The result is left "
        "out.",
        "run it again with: wirecost study run --resume --repair",
    ),
    _kind(
        "earlier_study",
        Severity.INFO,
        "The store also holds results of an earlier version of the study. They are kept and not shown.",
    ),
    _kind(
        "more_damaged_results",
        Severity.WARNING,
        "More results are damaged than are listed one by one. All of them are left out.",
        "run them again with: wirecost study run --resume --repair",
    ),
    _kind(
        "study_unreadable",
        Severity.WARNING,
        "The study's own file (study.yaml) can't be read. Results are shown by name, and those of an earlier "
        "version of the study can't be told apart.",
        "restore study.yaml, or start the study again with --resume",
    ),
)
