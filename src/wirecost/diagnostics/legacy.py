"""The warnings of earlier versions' files: objects of code and message, without severity and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wirecost.diagnostics.record import Diagnostic, Severity
from wirecost.diagnostics.registry import KINDS


def diagnostics_of_warnings(warnings: Any) -> tuple[Diagnostic, ...]:
    """Returns the diagnostics that stand for an earlier version's list of warnings.

    Their severity is the registry's, or `WARNING` for a code that is no longer registered. The remedy is part of
    the message in those versions.

    Raises:
        ValueError: unless every warning is an object of the strings `code` and `message`.
    """
    if not isinstance(warnings, list | tuple):
        raise ValueError("warnings: not a list")
    return tuple(_diagnostic(warning) for warning in warnings)


def legacy_warnings(diagnostics: Iterable[Diagnostic]) -> list[dict[str, str]]:
    """Returns diagnostics as the warnings of earlier versions, for readers of the key `warnings`."""
    return [{"code": d.code, "message": _former_message(d)} for d in diagnostics]


def _former_message(diagnostic: Diagnostic) -> str:
    subject = f"{diagnostic.subject}: " if diagnostic.subject else ""
    remedy = f"; {diagnostic.remedy}" if diagnostic.remedy else ""
    return f"{subject}{diagnostic.message}{remedy}"


def _diagnostic(warning: Any) -> Diagnostic:
    if not isinstance(warning, Mapping) or set(warning) != {"code", "message"}:
        raise ValueError("warnings: an entry is not an object of code and message")
    code, message = warning["code"], warning["message"]
    if not isinstance(code, str) or not isinstance(message, str):
        raise ValueError("warnings: code and message must be strings")
    kind = KINDS.get(code)
    return Diagnostic(code, kind.severity if kind else Severity.WARNING, message)
