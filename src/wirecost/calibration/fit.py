"""A fit with its properties and its errors on fitted rows and on rows left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wirecost.calibration.properties import Common, Free, Values
from wirecost.calibration.solver import Array, Fitted, solve, solve_all
from wirecost.diagnostics import Diagnostic
from wirecost.errors import SpecError

LEAST_SPREAD = 0.05
"""Half the width of the narrowest interval. Repeated runs on quiet machines differ by this much."""
FEWEST_TO_LEAVE_OUT = 3
"""Least number of rows for leaving some out."""
FEWEST_FOR_SPREAD = 6
"""Least number of rows left out for an interval from their errors."""


class Problem(Protocol):
    """Rows of measurements that properties are fitted to."""

    @property
    def owners(self) -> npt.NDArray[np.int64]:
        """Returns the row of each measurement, of shape (measurements,)."""
        ...

    @property
    def rows(self) -> int:
        """Returns the number of rows."""
        ...

    def errors(self, values: Mapping[str, float]) -> Array:
        """Returns log(predicted / measured) over its noise, of shape (measurements,)."""
        ...

    def row_errors(self, values: Mapping[str, float]) -> Array:
        """Returns predicted / measured - 1 (for fractions the difference), of shape (rows,)."""
        ...


@dataclass(frozen=True)
class HoldOut:
    """The way in which rows are left out: in `folds` parts (0: none), or all rows that share one of `labels`
    (named `column`).
    """

    folds: int = 5
    labels: tuple[str, ...] | None = None
    column: str = ""

    def masks(self, rows: int) -> list[npt.NDArray[np.bool_]]:
        """Returns a mask of the rows left out for each fit; no mask if nothing is left out."""
        if self.labels is not None:
            masks = [np.array([label == each for label in self.labels]) for each in sorted(set(self.labels))]
            if len(masks) < 2:
                raise SpecError(f"group: every row has the same {self.column}; nothing can be held out")
            return masks
        return random_folds(rows, self.folds) if self.folds >= 2 and rows >= FEWEST_TO_LEAVE_OUT else []

    def how(self, rows: int) -> str:
        """Returns a text on how rows are left out, or why none are."""
        if self.labels is not None:
            return f"whole values of {self.column}"
        if rows < FEWEST_TO_LEAVE_OUT:
            return f"{rows} are too few to leave any out, at least {FEWEST_TO_LEAVE_OUT} are needed"
        if self.folds < 2:
            return "none were left out (--folds)"
        return "one at a time" if self.folds >= rows else f"{self.folds} random folds"


@dataclass(frozen=True)
class Errors:
    """Mean absolute errors of the rows' time (of fractions, in fractions).

    `presets` are those with the properties' previous values. `held_out` are those of rows left out of the fit, and
    `held_out_presets` those of the same rows with the previous values. `spread` is the 90 % quantile of
    |log(predicted / measured)| of rows left out. The three are None if no rows were left out;
    `how` states how or why not.
    """

    presets: float
    fitted: float
    bias: float
    how: str
    held_out: float | None = None
    held_out_presets: float | None = None
    held_out_bias: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Fit:
    """The fit to one kind of measurements. `unit` is the unit of its errors: s or fraction."""

    name: str
    unit: str
    rows: int
    inputs: tuple[str, ...]
    properties: tuple[Fitted, ...]
    errors: Errors
    row_errors: tuple[float, ...]
    held_out_errors: tuple[float, ...] | None
    diagnostics: tuple[Diagnostic, ...] = field(default=())

    @property
    def values(self) -> Values:
        """Returns the values of the fitted properties."""
        return {p.name: p.value for p in self.properties if p.fitted}

    @property
    def determined(self) -> Values:
        """Returns the values of the properties that the data determine by themselves."""
        return {p.name: p.value for p in self.properties if p.determined}

    @property
    def beats_presets(self) -> bool | None:
        """Returns whether the fit is closer than the presets to rows left out; None if none were left out."""
        if self.errors.held_out is None or self.errors.held_out_presets is None:
            return None
        return self.errors.held_out < self.errors.held_out_presets

    def as_json(self) -> dict[str, Any]:
        """Returns plain data for a JSON document."""
        data = asdict(self)
        data["diagnostics"] = [d.as_json() for d in self.diagnostics]
        data["properties"] = [asdict(p) | {"reason": p.reason} for p in self.properties]
        return data | {"beats_presets": self.beats_presets}


@dataclass(frozen=True)
class Description:
    """The description of a fit's inputs. `fewest`, `reset` and `common` are those of `solve`."""

    name: str
    inputs: tuple[str, ...]
    unit: str = "s"
    fewest: int = 1
    reset: bool = True
    common: tuple[Common, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def fit(
    problem: Problem, properties: Sequence[Free], described: Description, hold_out: HoldOut | None = None
) -> Fit:
    """Fits the properties to the problem's rows, and judges the fit on rows left out. Needs scipy."""
    hold_out = hold_out or HoldOut()
    fitted = solve(
        properties, problem.errors, fewest=described.fewest, reset=described.reset, common=described.common
    )
    start = {p.name: p.start for p in properties}
    values = {f.name: f.value for f in fitted}
    of_presets, of_fit = problem.row_errors(start), problem.row_errors(values)
    moved = [p for p, f in zip(properties, fitted, strict=True) if f.fitted]
    held_out = leave_out(problem, moved, start, hold_out.masks(problem.rows), described.common) if moved else None
    how = hold_out.how(problem.rows) if moved else "nothing was fitted"
    errors = _errors(of_presets, of_fit, held_out, how, described.unit)
    return Fit(
        name=described.name,
        unit=described.unit,
        rows=problem.rows,
        inputs=described.inputs,
        properties=tuple(fitted),
        errors=errors,
        row_errors=tuple(of_fit.tolist()),
        held_out_errors=None if held_out is None else tuple(held_out[~np.isnan(held_out)].tolist()),
        diagnostics=described.diagnostics,
    )


def leave_out(
    problem: Problem,
    free: Sequence[Free],
    fixed: Values,
    masks: Sequence[npt.NDArray[np.bool_]],
    common: Sequence[Common] = (),
) -> Array | None:
    """Returns each row's error under a fit of `free` without that row (nan if no mask has the row); None without
    masks.
    """
    errors = np.full(problem.rows, np.nan)
    for mask in masks:
        keep = ~mask[problem.owners]
        if not keep.any() or keep.all():
            continue
        values = solve_all(free, fixed, lambda values, keep=keep: problem.errors(values)[keep], common)
        errors[mask] = problem.row_errors(fixed | values)[mask]
    return None if np.isnan(errors).all() else errors


def random_folds(count: int, k: int = 5, seed: int = 0) -> list[npt.NDArray[np.bool_]]:
    """Returns k masks of rows left out, which together contain every row once."""
    order = np.random.default_rng(seed).permutation(count)
    return [np.isin(np.arange(count), order[i::k]) for i in range(min(k, count))]


def _errors(of_presets: Array, of_fit: Array, held_out: Array | None, how: str, unit: str) -> Errors:
    presets, fitted = float(np.mean(np.abs(of_presets))), float(np.mean(np.abs(of_fit)))
    bias = float(np.mean(of_fit))
    if held_out is None:
        return Errors(presets, fitted, bias, how)
    known = ~np.isnan(held_out)
    rows_left_out = held_out[known]
    spread = None
    if unit == "s" and len(rows_left_out) >= FEWEST_FOR_SPREAD:
        # If there are few rows, the largest error replaces the 90 % quantile.
        logs = np.abs(np.log1p(np.maximum(rows_left_out, -1 + 1e-9)))
        spread = max(LEAST_SPREAD, float(np.quantile(logs, 0.9, method="higher")))
    return Errors(
        presets,
        fitted,
        bias,
        how,
        held_out=float(np.mean(np.abs(rows_left_out))),
        held_out_presets=float(np.mean(np.abs(of_presets[known]))),
        held_out_bias=float(np.mean(rows_left_out)),
        spread=spread,
    )
