"""CSV tables of measurements: iterations, communication fractions, or collective benchmarks."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from wirecost.calibration.inputs.columns import CannotExpressError
from wirecost.errors import SpecError
from wirecost.reading import read_text
from wirecost.spec import Cluster, Testbed

MAX_BYTES = 64 << 20
OF_REPORT = {"workload", "network", "plan", "iteration_ms"}
"""Columns of `wirecost report --format csv` of a study."""

Row = Mapping[str, str | None]
T = TypeVar("T")


class TableKind(StrEnum):
    """What a table's rows are measurements of."""

    ITERATIONS = "iterations"
    FRACTIONS = "communication fractions"
    COLLECTIVES = "collectives"


@dataclass(frozen=True)
class Setting:
    """What the user says of a table's rows where the rows don't: on which cluster, or on whose testbed."""

    cluster: Cluster | None = None
    testbed: Testbed | None = None


@dataclass
class Parsed(Generic[T]):
    """The rows that can be expressed, and the others with the reason."""

    rows: list[T] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)


def read_table(path: Path) -> list[dict[str, str | None]]:
    """Returns the rows of a CSV table.

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
    if _kind(columns) is None and columns >= OF_REPORT:
        raise SpecError(
            f"{path}: is a report of a study, which leaves out on what machine it ran: give the study's folder, "
            "which `wirecost study run STUDY.yaml --out FOLDER` wrote"
        )
    if _kind(columns) is None:
        raise SpecError(
            f"{path}: no table of measurements: expected the columns n_layers, hidden, mbs, gpu, iter_s, ... or "
            "workload, protocol, gpus, comm_fraction or collective, n_gpus, size_bytes, time_us"
        )
    return rows


def kind_of(table: Sequence[Row]) -> TableKind:
    """Returns what a table's rows are measurements of."""
    return _kind(set(table[0]) if table else set()) or TableKind.ITERATIONS


def _kind(columns: set[str]) -> TableKind | None:
    if {"workload", "comm_fraction"} <= columns and {"protocol", "cluster"} & columns:
        return TableKind.FRACTIONS
    if {"size_bytes", "time_us"} <= columns:
        return TableKind.COLLECTIVES
    # Some tables of runs lack the dimensions; then each row says so.
    if {"n_layers", "hidden", "mbs"} <= columns or {"model", "gpu", "metric"} <= columns:
        return TableKind.ITERATIONS
    return None


def identity(row: Row, index: int) -> str:
    """Returns the row's name: its `id`, or its number (from 1)."""
    return (row.get("id") or "").strip() or f"row {index}"


def parsed(table: Sequence[Row], parse: Callable[[Row, int], T]) -> Parsed[T]:
    """Returns every row as `parse` reads it, and those that it can't express with the reason."""
    result: Parsed[T] = Parsed()
    for index, row in enumerate(table, start=1):
        try:
            result.rows.append(parse(row, index))
        except CannotExpressError as reason:
            result.skipped.append({"id": identity(row, index), "reason": str(reason)})
    return result
