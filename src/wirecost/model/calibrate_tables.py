"""What `wirecost calibrate` does: sorts tables by what they hold, fits, and judges the fit on rows it did not
see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wirecost.errors import SpecError
from wirecost.model.calibrate import Problem, cross_validate, fit, grouped_folds, random_folds, usual_properties
from wirecost.model.calibrate_links import LinkFit, fit_links, is_benchmark
from wirecost.model.properties import Values, split_property
from wirecost.model.rows import Configuration
from wirecost.model.validate import configurations, is_fractions, read_table

FEWEST_TO_HOLD_OUT = 6


@dataclass
class Calibration:
    """Values by property, with errors before, on what was fitted, and on what was held out (None: too few rows).

    Errors are of iteration times (shares), or for fractions in fractions.
    """

    values: Values
    start: Values
    rows: int
    before: float
    mape: float
    bias: float
    held_out: float | None = None
    held_out_bias: float | None = None
    spread: float | None = None
    how: str = ""
    links: list[LinkFit] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def calibrate_tables(
    paths: Sequence[Path], *, free: Sequence[str] | None = None, folds: int = 5, group: str | None = None
) -> Calibration:
    """Fits to all tables together.

    Raises:
        SpecError: where a table can't be read, tables of fractions and of times are mixed, nothing can be fitted,
        or
            a property is unknown.
    """
    for name in free or ():
        split_property(name)
    rows: list[Configuration] = []
    benchmarks: list[dict[str, str | None]] = []
    fractions: list[dict[str, str | None]] = []
    for path in paths:
        table = read_table(path)
        columns = set(table[0]) if table else set()
        if is_fractions(columns):
            fractions += table
        elif is_benchmark(columns):
            benchmarks += table
        else:
            found, skipped = configurations(table)
            if not found:
                reason = skipped[0]["reason"] if skipped else "it has no rows"
                raise SpecError(f"{path}: no row can be calibrated on: {reason}")
            rows += found
    if sum(map(bool, (rows, fractions))) > 1:
        raise SpecError("fractions and iteration times are fitted apart: give one kind of table")
    if fractions:
        return _fractions(fractions)
    links = fit_links(benchmarks) if benchmarks else []
    from_links = {name: value for one in links for name, value in one.values.items()}
    if not rows:
        if not links:
            raise SpecError("nothing to calibrate on: the tables have no rows")
        count = sum(one.rows for one in links)
        mean = sum(one.mape * one.rows for one in links) / count
        start = {name: value for one in links for name, value in one.start.items()}
        before = sum(one.before * one.rows for one in links) / count
        return Calibration(from_links, start, count, before, mean, 0.0, links=links)
    return _times(rows, free, folds, group, from_links, links)


def _times(
    rows: list[Configuration],
    free: Sequence[str] | None,
    folds: int,
    group: str | None,
    from_links: Values,
    links: list[LinkFit],
) -> Calibration:
    problem = Problem(rows)
    names = list(free or usual_properties(problem.rows))
    names = [name for name in names if name not in from_links]
    # Few rows say little: the pull towards the presets grows as rows get fewer.
    pull = 0.02 if len(rows) > 3 * len(names) else 0.05
    before = problem.predict({}) / problem.measured - 1
    found = fit(problem, names, pull=pull, start=from_links)
    values = {**from_links, **found.values}
    result = Calibration(
        values, found.start, len(rows), float(np.mean(np.abs(before))), found.mape, found.bias, links=links
    )
    if len(rows) < FEWEST_TO_HOLD_OUT or (folds < 2 and group is None):
        return result
    if group is not None:
        masks = grouped_folds([r.parameters.get(group, "") for r in problem.rows])
        how = f"whole values of {group}"
        if len(masks) < 2:
            raise SpecError(f"group: every row has the same {group}; nothing can be held out")
    else:
        masks, how = random_folds(len(rows), folds), f"{min(folds, len(rows))} random folds"
    errors = cross_validate(problem, names, masks, pull=pull, evaluations=40)
    result.held_out = float(np.nanmean(np.abs(errors)))
    result.held_out_bias = float(np.nanmean(errors))
    result.spread = float(np.nanquantile(np.abs(np.log1p(errors)), 0.9))
    result.how = how
    return result


def _fractions(table: Sequence[dict[str, str | None]]) -> Calibration:
    from wirecost.model.calibrate_fractions import fit_fractions, fraction_errors

    found = fit_fractions(table)
    before = fraction_errors(table, {})
    return Calibration(
        found.values, found.start, found.rows, float(np.mean(np.abs(before))), found.mape, found.bias
    )
