"""Compares predictions with a table of measurements, for every row that the model can express."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wirecost.calibration.inputs.benchmarks import CollectiveRow, collective_row
from wirecost.calibration.inputs.evaluate import machine_of_row, predict_rows
from wirecost.calibration.inputs.fractions import fraction_rows
from wirecost.calibration.inputs.rows import TableRow, iteration_rows
from wirecost.calibration.inputs.table import Setting, TableKind, kind_of, parsed, read_table
from wirecost.calibration.links import problems_of
from wirecost.calibration.properties import Values
from wirecost.calibration.tables import fit_tables, read_tables
from wirecost.costmodel.iteration import iterate, iterate_memory
from wirecost.errors import SpecError
from wirecost.prediction.interval import row_spread

BY = ("link", "gpu", "model", "n_gpus", "tp", "pp", "dp", "mbs", "sharding", "act_recompute", "seq", "precision")

NOT_FINITE = "its numbers together give no finite time"


@dataclass
class RowResult:
    """One row with its prediction. `error` is predicted / measured - 1 of seconds, or predicted - measured of
    fractions.
    """

    id: str
    source: str
    measured: float | None
    predicted: float | None
    error: float | None
    low: float | None = None
    high: float | None = None
    stack: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    assumed: dict[str, Any] = field(default_factory=dict)


@dataclass
class TableValidation:
    """The validation of a table. `unit` is s, or fraction for tables of communication fractions (OOM is None on
    either side).
    """

    unit: str
    rows: list[RowResult]
    skipped: list[dict[str, str]]
    calibrated_on: str | None = None

    def groups(self) -> list[dict[str, Any]]:
        """Returns MAPE (mean absolute error for fractions), bias and worst row of each source."""
        return [summary(name, rows) for name, rows in _by(self.rows, lambda r: r.source).items()]

    def by_parameter(self, name: str) -> list[dict[str, Any]]:
        """Returns the same for each value of a parameter."""
        groups = _by(self.rows, lambda r: str(r.parameters.get(name, "")) or "-")
        return [summary(label, rows) for label, rows in sorted(groups.items(), key=lambda item: _natural(item[0]))]

    def as_json(self) -> dict[str, Any]:
        """Returns plain data for a JSON document."""
        return {
            "unit": self.unit,
            "calibrated_on": self.calibrated_on,
            "groups": self.groups(),
            "rows": [
                {key: value for key, value in asdict(row).items() if key != "parameters"} for row in self.rows
            ],
            "skipped": self.skipped,
            "by_parameter": {
                name: self.by_parameter(name) for name in BY if any(name in r.parameters for r in self.rows)
            },
        }


def _natural(label: str) -> tuple[int, float, str]:
    try:
        return (0, float(label), label)
    except ValueError:
        return (1, 0.0, label)


def _by(rows: Sequence[RowResult], label: Callable[[RowResult], str]) -> dict[str, list[RowResult]]:
    groups: dict[str, list[RowResult]] = {}
    for row in rows:
        groups.setdefault(label(row), []).append(row)
    return groups


def summary(name: str, rows: Sequence[RowResult]) -> dict[str, Any]:
    """Returns MAPE, bias, worst row and interval coverage of rows with an error; OOM cells are
    counted separately.
    """
    errors = [(r.error, r.id) for r in rows if r.error is not None]
    worst = max(errors, key=lambda item: abs(item[0]), default=(None, None))
    bounded = [r for r in rows if r.low is not None and r.high is not None and r.measured is not None]
    inside = sum(r.low <= r.measured <= r.high for r in bounded)  # type: ignore[operator]
    oom = [r for r in rows if r.measured is None]
    return {
        "source": name,
        "rows": len(rows),
        "mape": float(np.mean([abs(e) for e, _ in errors])) if errors else None,
        "bias": float(np.mean([e for e, _ in errors])) if errors else None,
        "max_ape": abs(worst[0]) if worst[0] is not None else None,
        "worst": worst[1],
        "interval_coverage": inside / len(bounded) if bounded else None,
        "oom_cells": len(oom),
        "oom_right": sum(r.predicted is None for r in oom),
        "oom_false": sum(r.predicted is None for r in rows if r.measured is not None),
    }


@dataclass(frozen=True)
class _Fitted:
    """Values fitted to another table, with the intervals of rows of its stacks."""

    values: Values = field(default_factory=dict)
    spread: float | None = None
    stacks: frozenset[str] = frozenset()

    def half_width(self, row: TableRow) -> float:
        """Returns half the width of the row's interval in natural logarithms."""
        if self.spread is not None and row.key.stack in self.stacks:
            return self.spread
        return row_spread(row)


def validate_table(
    path: Path, *, setting: Setting | None = None, calibrate_on: Path | None = None
) -> TableValidation:
    """Predicts a table of measurements. `calibrate_on`: fit to this table first (and to nothing of `path`).

    Raises:
        SpecError: if a table can't be read, or nothing can be calibrated on.
    """
    setting = setting or Setting()
    fitted = _fitted_to(calibrate_on, setting) if calibrate_on else _Fitted()
    table = read_table(path)
    validators = {
        TableKind.ITERATIONS: _validate_iterations,
        TableKind.FRACTIONS: _validate_fractions,
        TableKind.COLLECTIVES: _validate_collectives,
    }
    try:
        result = validators[kind_of(table)](table, setting, fitted)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error
    result.calibrated_on = str(calibrate_on) if calibrate_on else None
    return result


def _fitted_to(path: Path, setting: Setting) -> _Fitted:
    tables = read_tables([path], setting)
    fits = fit_tables(tables)
    values = {name: value for fit in fits for name, value in fit.values.items()}
    spread = fits[-1].errors.spread if tables.iterations else None
    return _Fitted(values, spread, frozenset(row.key.stack for row in tables.iterations))


def _validate_iterations(
    table: Sequence[Mapping[str, str | None]], setting: Setting, fitted: _Fitted
) -> TableValidation:
    rows = iteration_rows(table)
    predicted, chosen = predict_rows(rows.rows, fitted.values)
    results = []
    for row, value in zip(chosen, predicted, strict=True):
        if not (np.isfinite(value) and value > 0):
            rows.skipped.append({"id": row.id, "reason": NOT_FINITE})
            continue
        half_width = fitted.half_width(row)
        measured = row.measured or 0.0
        results.append(
            RowResult(
                row.id,
                row.source,
                measured,
                float(value),
                float(value / measured - 1),
                float(value * np.exp(-half_width)),
                float(value * np.exp(half_width)),
                row.key.stack,
                row.parameters,
                row.assumed,
            )
        )
    return TableValidation("s", results, rows.skipped)


def _validate_collectives(
    table: Sequence[Mapping[str, str | None]], setting: Setting, fitted: _Fitted
) -> TableValidation:
    rows = parsed(table, lambda row, index: collective_row(row, index, setting))
    results: dict[int, RowResult] = {}
    for problem, members in problems_of(rows.rows):
        for row, value in zip(members, problem.predict(fitted.values).tolist(), strict=True):
            results[id(row)] = _collective_result(row, value)
    return TableValidation("s", [results[id(row)] for row in rows.rows], rows.skipped)


def _collective_result(row: CollectiveRow, value: float) -> RowResult:
    seconds = row.measured.seconds
    parameters = {"gpu": row.gpu.name, "n_gpus": f"{row.measured.ranks}", "link": row.link.name}
    return RowResult(
        row.id, row.source, seconds, value, value / seconds - 1, stack=row.link.name, parameters=parameters
    )


def _validate_fractions(
    table: Sequence[Mapping[str, str | None]], setting: Setting, fitted: _Fitted
) -> TableValidation:
    rows = fraction_rows(table, setting)
    results = []
    for row in rows.rows:
        value = predict_fraction(row, fitted.values)
        error = value - row.measured if value is not None and row.measured is not None else None
        results.append(
            RowResult(
                row.id, row.source, row.measured, value, error, stack=row.key.stack, parameters=row.parameters
            )
        )
    return TableValidation("fraction", results, rows.skipped)


def predict_fraction(row: TableRow, values: Values) -> float | None:
    """Returns the communication fraction of a row; None if the configuration does not fit in memory."""
    machine = machine_of_row(row, values)
    if float(iterate_memory(row.shape, row.layout, machine).least) > machine.memory_bytes:
        return None
    times = iterate(row.shape, row.layout, machine)
    return float(times.comm_fraction)
