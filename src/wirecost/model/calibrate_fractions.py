"""Fits the interconnect study's links and stack to communication fractions, as `calibrate` does to seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from wirecost.errors import SpecError
from wirecost.model.calibrate import Fit
from wirecost.model.columns import CannotExpressError
from wirecost.model.inputs import Machine
from wirecost.model.properties import FREE, machine_with, split_property, start_value
from wirecost.model.rows import MachineKey
from wirecost.model.study_table import STACK, FractionRow, fraction_row, predict_fraction
from wirecost.spec import Cluster, MatrixPrecision
from wirecost.spec.presets import named

# Fractions tell ratios only. The scale is pinned by what InfiniBand EDR reaches (its preset), which isn't fitted
# here.
PROPERTIES = (
    "link pcie4 efficiency",
    "link ipoib-100g efficiency",
    "link tcp-10g efficiency",
    f"stack {STACK} host_forward_s",
    f"stack {STACK} host_backward_s",
    f"stack {STACK} host_sharpness",
    f"stack {STACK} host_masked",
    f"stack {STACK} hidden_bytes",
    f"stack {STACK} attention_bytes_forward",
    f"stack {STACK} attention_bytes_backward",
    f"stack {STACK} iteration_s",
)


def machine_with_fractions(row: FractionRow, values: Mapping[str, float]) -> Machine:
    """The row's machine with fitted properties in place of its presets'."""
    if not values:
        return row.machine()
    cluster = Cluster.model_validate(named("cluster", row.cluster))
    key = MachineKey(
        cluster.accelerator.name,
        STACK,
        cluster.intra_node.name,
        cluster.intra_node.rate / 8,
        cluster.inter_node.name,
        cluster.node_rate_Bps,
        cluster.gpus_per_node,
        MatrixPrecision.FP16,
    )
    return replace(machine_with(key, values), intra_Bps=cluster.intra_node.rate / 8)


def fit_fractions(
    table: Sequence[Mapping[str, str | None]], *, pull: float = 0.01, properties: Sequence[str] = PROPERTIES
) -> Fit:
    """Fits to a table of fractions; OOM cells carry no fraction and are left out. Needs scipy.

    Raises:
        SpecError: where no row carries a fraction that can be expressed.
    """
    from scipy.optimize import least_squares

    rows = _rows(table)
    if not rows:
        raise SpecError("nothing to calibrate on: no row carries a communication fraction that can be expressed")
    first = {name: start_value(name) for name in properties}
    bounds = [FREE[kind][prop] for kind, _, prop in map(split_property, properties)]
    low, high = np.log([b[0] for b in bounds]), np.log([b[1] for b in bounds])
    x0 = np.clip(np.log([first[name] for name in properties]), low + 1e-6, high - 1e-6)

    def residuals(x: np.ndarray) -> np.ndarray:
        values = dict(zip(properties, np.exp(x).tolist(), strict=True))
        return np.concatenate([_errors(rows, values), pull * (x - x0)])

    found = least_squares(residuals, x0, bounds=(low, high), max_nfev=40, x_scale=0.3)
    values = dict(zip(properties, np.exp(found.x).tolist(), strict=True))
    error = _errors(rows, values)
    return Fit(values, first, len(rows), float(np.mean(np.abs(error))), float(np.mean(error)))


def fraction_errors(table: Sequence[Mapping[str, str | None]], values: Mapping[str, float]) -> np.ndarray:
    """predicted - measured of every row that carries a fraction, memory ignored."""
    return _errors(_rows(table), values)


def _errors(rows: Sequence[FractionRow], values: Mapping[str, float]) -> np.ndarray:
    machines = {c: machine_with_fractions(r, values) for c, r in {r.cluster: r for r in rows}.items()}
    found = [predict_fraction(row, machines[row.cluster], ignore_memory=True) for row in rows]
    return np.array(found, dtype=np.float64) - np.array([row.measured for row in rows], dtype=np.float64)


def _rows(table: Sequence[Mapping[str, str | None]]) -> list[FractionRow]:
    rows: list[FractionRow] = []
    for index, row in enumerate(table, start=1):
        try:
            one = fraction_row(row, index)
        except CannotExpressError:
            continue
        if one.measured is not None:
            rows.append(one)
    return rows
