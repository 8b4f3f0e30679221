"""Diagnostics as lines of text."""

from __future__ import annotations

from wirecost.diagnostics.record import Diagnostic
from wirecost.text import printable


def lines_of(diagnostic: Diagnostic) -> list[str]:
    """Returns "SEVERITY CODE: MESSAGE" and, if there is a remedy, "-> REMEDY", both safe for a terminal."""
    subject = f"{diagnostic.subject}: " if diagnostic.subject else ""
    lines = [f"{diagnostic.severity} {diagnostic.code}: {subject}{diagnostic.message}"]
    if diagnostic.remedy:
        lines.append(f"-> {diagnostic.remedy}")
    return [printable(line) for line in lines]
