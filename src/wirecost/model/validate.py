"""Holds the model against published measurements: predicts every row it can express, says why not for the
others."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wirecost.errors import SpecError
from wirecost.model.batch import machine_for, predict_rows
from wirecost.model.calibrate_links import LinkFit, fit_links, is_benchmark, predict_benchmark, sample_of
from wirecost.model.columns import CannotExpressError
from wirecost.model.inputs import Machine
from wirecost.model.rows import Configuration, MachineKey, configuration
from wirecost.model.study_table import FractionRow, fraction_row, predict_fraction
from wirecost.reading import read_text

MAX_BYTES = 64 << 20
BY = ("link", "gpu", "model", "n_gpus", "tp", "pp", "dp", "mbs", "sharding", "act_recompute", "seq", "precision")


@dataclass
class RowResult:
    """`error` is predicted / measured - 1 of seconds, or predicted - measured of fractions."""

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
class Validation:
    """`unit` is s, or fraction for tables of communication fractions (OOM is None on either side)."""

    unit: str
    rows: list[RowResult]
    skipped: list[dict[str, str]]
    calibrated_on: str | None = None

    def groups(self) -> list[dict[str, Any]]:
        """MAPE (mean absolute error for fractions), bias and worst row of each source."""
        return [summary(name, rows) for name, rows in _by(self.rows, lambda r: r.source).items()]

    def by_parameter(self, name: str) -> list[dict[str, Any]]:
        found = _by(self.rows, lambda r: str(r.parameters.get(name, "")) or "-")
        return [summary(label, rows) for label, rows in sorted(found.items(), key=lambda item: _natural(item[0]))]

    def as_json(self) -> dict[str, Any]:
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
    found: dict[str, list[RowResult]] = {}
    for row in rows:
        found.setdefault(label(row), []).append(row)
    return found


def summary(name: str, rows: Sequence[RowResult]) -> dict[str, Any]:
    """MAPE, bias, worst row and how many intervals hold, of rows with an error; OOM cells are counted apart."""
    errors = [(r.error, r.id) for r in rows if r.error is not None]
    worst = max(errors, key=lambda item: abs(item[0]), default=(None, None))
    bounded = [r for r in rows if r.low is not None and r.high is not None and r.measured is not None]
    held = sum(r.low <= r.measured <= r.high for r in bounded)  # type: ignore[operator]
    oom = [r for r in rows if r.measured is None]
    return {
        "source": name,
        "rows": len(rows),
        "mape": float(np.mean([abs(e) for e, _ in errors])) if errors else None,
        "bias": float(np.mean([e for e, _ in errors])) if errors else None,
        "max_ape": abs(worst[0]) if worst[0] is not None else None,
        "worst": worst[1],
        "interval_coverage": held / len(bounded) if bounded else None,
        "oom_cells": len(oom),
        "oom_right": sum(r.predicted is None for r in oom),
        "oom_false": sum(r.predicted is None for r in rows if r.measured is not None),
    }


def read_table(path: Path) -> list[dict[str, str | None]]:
    """The rows of a CSV table of iterations, communication fractions or collective benchmarks.

    Raises:
        SpecError: if the file can't be read, isn't CSV text, or lacks every column that a table must have.
    """
    text = read_text(
        path, most_bytes=MAX_BYTES, what="table of measurements", encoding="utf-8-sig", error=SpecError
    )
    if "\0" in text:
        raise SpecError(f"{path}: holds NUL bytes: not a CSV table")
    try:
        reader = csv.DictReader(text.splitlines(), strict=False)
        rows = list(reader)
    except csv.Error as error:
        raise SpecError(f"{path}: not readable as CSV: {error}") from error
    columns = set(reader.fieldnames or ())
    if not is_measured(columns) and not is_fractions(columns) and not is_benchmark(columns):
        raise SpecError(
            f"{path}: no table of measurements: expected the columns n_layers, hidden, mbs, gpu, iter_s, ... or "
            "workload, protocol, gpus, comm_fraction or collective, n_gpus, size_bytes, time_us"
        )
    return rows


def is_measured(columns: set[str]) -> bool:
    """Tables of runs; some of them lack the dimensions, and then each row says so."""
    return {"n_layers", "hidden", "mbs"} <= columns or {"model", "gpu", "metric"} <= columns


def is_fractions(columns: set[str]) -> bool:
    return {"workload", "protocol", "comm_fraction"} <= columns


def configurations(
    table: Sequence[Mapping[str, str | None]],
) -> tuple[list[Configuration], list[dict[str, str]]]:
    """The rows that can be expressed and carry a measured time, and the others with the reason."""
    rows, skipped = [], []
    for index, row in enumerate(table, start=1):
        identity = (row.get("id") or "").strip() or f"row {index}"
        try:
            one = configuration(row, index)
        except CannotExpressError as reason:
            skipped.append({"id": identity, "reason": str(reason)})
            continue
        if one.measured_s is None:
            skipped.append({"id": identity, "reason": "no measured iteration time (iter_s is empty)"})
        else:
            rows.append(one)
    return rows, skipped


def validate_table(path: Path, *, calibrate_on: Path | None = None) -> Validation:
    """Predicts a table of measurements. `calibrate_on`: fit on this table first (and on nothing of `path`).

    Raises:
        SpecError: if a table can't be read, or nothing can be calibrated on.
    """
    table = read_table(path)
    fractions = is_fractions(set(table[0]) if table else set())
    if fractions:
        from wirecost.model.calibrate_fractions import fit_fractions, machine_with_fractions

        values = fit_fractions(read_table(calibrate_on)).values if calibrate_on else {}
        result = _validate_fractions(table, lambda row: machine_with_fractions(row, values))
    elif is_benchmark(set(table[0]) if table else set()):
        result = _validate_benchmarks(table, fit_links(read_table(calibrate_on)) if calibrate_on else [])
    else:
        machine: Callable[[MachineKey], Machine] = machine_for
        spread = None
        if calibrate_on:
            from wirecost.model.calibrate import calibrated_machine

            machine, spread = calibrated_machine(configurations(read_table(calibrate_on))[0])
        result = _validate_seconds(table, machine, spread)
    result.calibrated_on = str(calibrate_on) if calibrate_on else None
    return result


def _validate_seconds(
    table: Sequence[Mapping[str, str | None]],
    machine: Callable[[MachineKey], Machine],
    spread: Callable[[Configuration], float] | None,
) -> Validation:
    from wirecost.model.interval import spread_of

    rows, skipped = configurations(table)
    predicted, rows = predict_rows(rows, machine)
    results = []
    for row, value in zip(rows, predicted, strict=True):
        if not (np.isfinite(value) and value > 0):
            skipped.append({"id": row.id, "reason": "its numbers together give no finite time"})
            continue
        wide = spread(row) if spread else spread_of(row)
        measured = row.measured_s or 0.0
        results.append(
            RowResult(
                row.id,
                row.source,
                measured,
                float(value),
                float(value / measured - 1),
                float(value * np.exp(-wide)),
                float(value * np.exp(wide)),
                row.key.stack,
                row.parameters,
                row.assumed,
            )
        )
    return Validation("s", results, skipped)


def _validate_benchmarks(table: Sequence[Mapping[str, str | None]], fits: Sequence[LinkFit]) -> Validation:
    results, skipped = [], []
    for index, row in enumerate(table, start=1):
        identity = (row.get("id") or "").strip() or f"row {index}"
        try:
            one = sample_of(row)
        except CannotExpressError as error:
            skipped.append({"id": identity, "reason": str(error)})
            continue
        if one is None:
            reason = "no all-reduce, all-gather or reduce-scatter of 64 kB or more with its size, time and GPUs"
            skipped.append({"id": identity, "reason": reason})
            continue
        value = predict_benchmark(one, fits)
        results.append(
            RowResult(
                identity,
                (row.get("source") or "unknown").strip(),
                one.seconds,
                value,
                value / one.seconds - 1,
                stack=one.link,
                parameters={"gpu": one.gpu, "n_gpus": f"{one.gpus:.0f}", "link": one.link},
            )
        )
    return Validation("s", results, skipped)


def _validate_fractions(
    table: Sequence[Mapping[str, str | None]], machine: Callable[[FractionRow], Machine]
) -> Validation:
    results, skipped = [], []
    for index, row in enumerate(table, start=1):
        try:
            one = fraction_row(row, index)
        except CannotExpressError as reason:
            skipped.append({"id": (row.get("id") or "").strip() or f"row {index}", "reason": str(reason)})
            continue
        value = predict_fraction(one, machine(one))
        error = value - one.measured if value is not None and one.measured is not None else None
        parameters = {
            key: (row.get(key) or "") for key in ("workload", "protocol", "scaling", "gpus", "micro_batch")
        }
        results.append(
            RowResult(
                one.id,
                row.get("source") or "interconnect study",
                one.measured,
                value,
                error,
                parameters=parameters,
            )
        )
    return Validation("fraction", results, skipped)
