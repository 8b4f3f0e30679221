"""Fits named properties of GPUs, links and software stacks to measured iterations, and says how well.

What may be fitted is listed in FREE: a property of a GPU, a link or a stack, never a constant of a row or a
source. The fit minimises a robust loss of log(predicted / measured), with a weak pull towards the values it
starts from, so that a property which the measurements say nothing about stays where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from wirecost.errors import SpecError
from wirecost.model.batch import choose_open, grouped, machine_for, stacked_layout, stacked_shape
from wirecost.model.inputs import Layout, Machine, Shape
from wirecost.model.iteration import iterate
from wirecost.model.properties import FREE, Values, machine_with, split_property, start_value
from wirecost.model.rows import Configuration, MachineKey
from wirecost.spec.presets import named


@dataclass
class Fit:
    """What a calibration found: values by property, and the error on the rows it was fitted to."""

    values: Values
    start: Values
    rows: int
    mape: float
    bias: float
    folds: dict[str, float] = field(default_factory=dict)  # how held out: mean absolute error


@dataclass
class _Group:
    key: MachineKey
    machine: Machine
    shape: Shape
    layout: Layout
    members: npt.NDArray[np.int64]


class Problem:
    """Rows with a measured time, arranged for repeated evaluation under changing properties."""

    def __init__(
        self, rows: Sequence[Configuration], machine: Callable[[MachineKey], Machine] = machine_for
    ) -> None:
        self.rows = [choose_open(r, machine(r.key)) if r.choose else r for r in rows if r.measured_s]
        self.measured = np.array([r.measured_s for r in self.rows], dtype=np.float64)
        self.groups = [
            _Group(
                key,
                machine_for(key),
                stacked_shape([self.rows[i].shape for i in members]),
                stacked_layout([self.rows[i].layout for i in members]),
                np.array(members),
            )
            for key, members in grouped(self.rows).items()
        ]

    def predict(self, values: Mapping[str, float]) -> npt.NDArray[np.float64]:
        predicted = np.empty(len(self.rows))
        for part in self.groups:
            total = iterate(part.shape, part.layout, machine_with(part.key, values)).total_s
            predicted[part.members] = np.broadcast_to(total, len(part.members))
        return predicted

    def subset(self, keep: npt.NDArray[np.bool_]) -> Problem:
        return Problem([row for row, kept in zip(self.rows, keep, strict=True) if kept])


def usual_properties(rows: Sequence[Configuration]) -> list[str]:
    """What a calibration on these rows frees when nothing else is said: their stacks and GPUs, and their links
    where rows use them."""
    found: dict[str, None] = {}
    for row in rows:
        key, layout = row.key, row.layout
        skip = {"low_precision_efficiency", "matrix_efficiency", "attention_bytes_forward", "straggler"}
        unfused = named("stack", key.stack)["attention"] == "unfused"
        if not unfused:
            skip |= {"attention_bytes_backward", "unaligned_efficiency", "host_softmax_fallback_s"}
        for prop in FREE["stack"]:
            if prop not in skip:
                found[f"stack {key.stack} {prop}"] = None
        for prop in ("matrix_efficiency", "matrix_traffic"):
            found[f"gpu {key.gpu} {prop}"] = None
        if layout.world > key.gpus_per_node:
            found[f"link {key.inter} efficiency"] = None
        if layout.world > 1:
            found[f"link {key.intra} efficiency"] = None
    return list(found)


def _seed(name: str, value: float) -> float:
    """A property that is 0 (switched off) starts inside its range, where the fit can feel it."""
    kind, _, prop = name.split()
    low, high = FREE[kind][prop]
    return value if value > 0 else (low * high) ** 0.5


def fit(
    problem: Problem,
    properties: Sequence[str],
    *,
    weights: npt.NDArray[np.float64] | None = None,
    start: Mapping[str, float] | None = None,
    pull: float = 0.02,
    scale: float = 0.04,
    evaluations: int = 60,
) -> Fit:
    """Fits `properties` to the problem's rows.

    `pull` weighs the distance (in natural logarithms) from where the fit starts; `scale` is the log error beyond
    which a row counts linearly instead of squared. Needs scipy.

    Raises:
        SpecError: for no rows, or an unknown property.
    """
    from scipy.optimize import least_squares

    if not len(problem.rows):
        raise SpecError(
            "nothing to calibrate on: no row carries dimensions and a measured time that can be expressed"
        )
    first = {name: start_value(name) for name in properties}
    first.update({name: value for name, value in (start or {}).items() if name in first})
    bounds = [FREE[kind][prop] for kind, _, prop in map(split_property, properties)]
    low, high = np.log([b[0] for b in bounds]), np.log([b[1] for b in bounds])
    x0 = np.clip(np.log([_seed(name, first[name]) for name in properties]), low + 1e-6, high - 1e-6)
    weight = np.ones(len(problem.rows)) if weights is None else np.sqrt(weights)

    def residuals(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        values = dict(zip(properties, np.exp(x).tolist(), strict=True))
        error = np.log(problem.predict(values) / problem.measured)
        # soft L1 by hand, so that the pull stays quadratic
        z = (error / scale) ** 2
        robust = np.sign(error) * scale * np.sqrt(2 * (np.sqrt(1 + z) - 1))
        return np.concatenate([weight * robust, pull * (x - x0)])

    found = least_squares(residuals, x0, bounds=(low, high), max_nfev=evaluations, x_scale=0.3, method="trf")
    values = dict(zip(properties, np.exp(found.x).tolist(), strict=True))
    error = problem.predict(values) / problem.measured - 1
    return Fit(values, first, len(problem.rows), float(np.mean(np.abs(error))), float(np.mean(error)))


def calibrated_machine(
    rows: Sequence[Configuration],
) -> tuple[Callable[[MachineKey], Machine], Callable[[Configuration], float]]:
    """Fits to these rows what they can tell, and gives the machines and interval widths that follow.

    Raises:
        SpecError: where no row can be fitted.
    """
    from wirecost.model.interval import spread_of

    problem = Problem(rows)
    names = usual_properties(problem.rows)
    found = fit(problem, names, pull=0.02 if len(rows) > 3 * len(names) else 0.05)
    stacks = {row.key.stack for row in problem.rows}
    wide = spread_of
    if len(rows) >= 20:
        errors = cross_validate(problem, names, random_folds(len(rows), 3), evaluations=25)
        fitted = float(np.nanquantile(np.abs(np.log1p(errors)), 0.9))

        def wide(row: Configuration) -> float:
            return fitted if row.key.stack in stacks else spread_of(row)

    return (lambda key: machine_with(key, found.values)), wide


def cross_validate(
    problem: Problem,
    properties: Sequence[str],
    folds: Sequence[npt.NDArray[np.bool_]],
    *,
    weights: npt.NDArray[np.float64] | None = None,
    **options: Any,
) -> npt.NDArray[np.float64]:
    """Relative errors of every row when predicted by a fit that did not see its fold; nan where no fold has it.

    `folds` are masks of held-out rows.
    """
    errors = np.full(len(problem.rows), np.nan)
    for held in folds:
        if not held.any() or held.all():
            continue
        part = None if weights is None else weights[~held]
        found = fit(problem.subset(~held), properties, weights=part, **options)
        judged = problem.subset(held)
        errors[held] = judged.predict(found.values) / judged.measured - 1
    return errors


def random_folds(count: int, k: int = 5, seed: int = 0) -> list[npt.NDArray[np.bool_]]:
    """k masks of held-out rows that together hold every row once."""
    order = np.random.default_rng(seed).permutation(count)
    return [np.isin(np.arange(count), order[i::k]) for i in range(min(k, count))]


def grouped_folds(labels: Sequence[Any]) -> list[npt.NDArray[np.bool_]]:
    """One mask for each different label: whole models, degrees or micro-batches held out."""
    return [np.array([label == one for label in labels]) for one in sorted(set(labels), key=str)]
