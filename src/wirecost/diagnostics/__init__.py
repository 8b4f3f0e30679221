"""Diagnostics: what wirecost reports beside its numbers, each with a registered code.

`diagnostic` makes one. `docs/reference/diagnostics.md` lists every code; `python -m wirecost.diagnostics` prints
that page.
"""

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.legacy import diagnostics_of_warnings, legacy_warnings
from wirecost.diagnostics.record import Diagnostic, Severity
from wirecost.diagnostics.registry import KINDS, area_of, diagnostic, loses_data
from wirecost.diagnostics.text import lines_of

__all__ = [
    "KINDS",
    "Area",
    "Diagnostic",
    "Kind",
    "Severity",
    "area_of",
    "diagnostic",
    "diagnostics_of_warnings",
    "legacy_warnings",
    "lines_of",
    "loses_data",
]
