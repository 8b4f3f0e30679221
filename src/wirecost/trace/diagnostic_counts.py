"""Counts the faults of a trace by the code of the diagnostic that reports them."""

from __future__ import annotations

from wirecost.diagnostics import KINDS, Diagnostic, diagnostic, loses_data


class DiagnosticCounts:
    """Counts by registered code, with the first detail that was given of each code."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._details: dict[str, str] = {}

    def add(self, code: str, count: int = 1, detail: str = "") -> None:
        """Adds to the count of a code; a count of 0 or less adds nothing.

        Raises:
            KeyError: if the code is not registered.
        """
        if count <= 0:
            return
        if code not in KINDS:
            raise KeyError(code)
        self._counts[code] = self._counts.get(code, 0) + int(count)
        if detail:
            self._details.setdefault(code, detail)

    def copy(self) -> DiagnosticCounts:
        """Returns counts of their own that start with the same values."""
        other = DiagnosticCounts()
        other._counts, other._details = dict(self._counts), dict(self._details)
        return other

    def count(self, code: str) -> int:
        """Returns the count of a code; 0 if it was never added."""
        return self._counts.get(code, 0)

    def listed(self) -> list[Diagnostic]:
        """Returns a diagnostic for each code, those of lost data first, then by count."""
        diagnostics = [diagnostic(code, self._message(code), count=count) for code, count in self._counts.items()]
        return sorted(diagnostics, key=lambda d: (not loses_data(d), -(d.count or 0), d.code))

    def _message(self, code: str) -> str:
        detail = self._details.get(code)
        return KINDS[code].message + (f" ({detail})" if detail else "")
