"""Every code, and the function that makes a diagnostic of one."""

from __future__ import annotations

from collections.abc import Mapping

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.kinds import (
    benchmark_tables,
    calibration,
    counters,
    machine,
    machine_settings,
    measurement,
    nccl_logs,
    prediction,
    results,
    traces,
    whatif,
)
from wirecost.diagnostics.record import Diagnostic, Severity


def _by_code(*groups: tuple[Kind, ...]) -> Mapping[str, Kind]:
    """Returns the kinds by code.

    Raises:
        ValueError: if two of them have the same code.
    """
    kinds: dict[str, Kind] = {}
    for kind in (kind for group in groups for kind in group):
        if kind.code in kinds:
            raise ValueError(f"two diagnostics have the code {kind.code}")
        kinds[kind.code] = kind
    return kinds


KINDS = _by_code(
    measurement.KINDS,
    results.KINDS,
    nccl_logs.KINDS,
    traces.KINDS,
    benchmark_tables.KINDS,
    prediction.KINDS,
    calibration.KINDS,
    counters.KINDS,
    machine.KINDS,
    machine_settings.KINDS,
    whatif.KINDS,
)
"""Every registered kind by its code."""


def diagnostic(
    code: str,
    message: str,
    *,
    remedy: str | None = None,
    severity: Severity | None = None,
    subject: str | None = None,
    count: int | None = None,
) -> Diagnostic:
    """Returns a diagnostic of a registered code.

    Args:
        message: one line that says what was seen; the remedy is not part of it.
        remedy: what to do here; the registry's remedy where it is None.
        severity: how grave it is here; the registry's severity where it is None.

    Raises:
        KeyError: if the code is not registered.
    """
    kind = KINDS[code]
    return Diagnostic(
        code=code,
        severity=kind.severity if severity is None else severity,
        message=message,
        remedy=kind.remedy if remedy is None else remedy,
        subject=subject,
        count=count,
    )


def loses_data(diagnostic: Diagnostic) -> bool:
    """Returns whether data is missing from the numbers because of what a diagnostic reports."""
    kind = KINDS.get(diagnostic.code)
    return kind is not None and kind.loses_data


def area_of(code: str) -> Area:
    """Returns the area of a registered code. Raises KeyError for another one."""
    return KINDS[code].area
