"""Poses rows of tables as a problem for the solver: iteration times or communication fractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from wirecost.calibration.inputs.evaluate import grouped, with_choices
from wirecost.calibration.inputs.rows import TableRow
from wirecost.calibration.solver import Array

NOISE_S = 0.02
"""Standard deviation of log(measured time) that is assumed for a row."""
NOISE_FRACTION = 0.01
"""Standard deviation of a measured fraction: published ones have two digits."""


class IterationRows:
    """Rows with a measured iteration time. `weights` are the rows' weights. Unspecified settings are chosen under
    the presets.
    """

    def __init__(self, rows: Sequence[TableRow], weights: npt.NDArray[np.float64] | None = None) -> None:
        kept = [i for i, row in enumerate(rows) if row.measured]
        self.table = with_choices([rows[i] for i in kept], {})
        self.measured = np.array([row.measured for row in self.table], dtype=np.float64)
        self.noise = np.full(len(kept), NOISE_S)
        if weights is not None:
            self.noise = NOISE_S / np.sqrt(weights[kept])
        self.owners = np.arange(len(kept))
        self._groups = grouped(self.table)

    @property
    def rows(self) -> int:
        """Returns the number of rows with a time."""
        return len(self.table)

    def predict(self, values: Mapping[str, float]) -> Array:
        """Returns the predicted seconds of each row."""
        predicted = np.empty(self.rows)
        for group in self._groups:
            predicted[group.members] = np.broadcast_to(group.iterate(values).total_s, len(group.members))
        return predicted

    def errors(self, values: Mapping[str, float]) -> Array:
        """Returns log(predicted / measured) over its noise."""
        return np.log(self.predict(values) / self.measured) / self.noise

    def row_errors(self, values: Mapping[str, float]) -> Array:
        """Returns predicted / measured - 1."""
        return self.predict(values) / self.measured - 1


class FractionRows:
    """Rows with a measured communication fraction. Memory is ignored."""

    def __init__(self, rows: Sequence[TableRow]) -> None:
        self.table = [row for row in rows if row.measured is not None]
        self.measured = np.array([row.measured for row in self.table], dtype=np.float64)
        self.owners = np.arange(len(self.table))
        self._groups = grouped(self.table)

    @property
    def rows(self) -> int:
        """Returns the number of rows with a fraction."""
        return len(self.table)

    def errors(self, values: Mapping[str, float]) -> Array:
        """Returns predicted - measured over its noise."""
        return self.row_errors(values) / NOISE_FRACTION

    def row_errors(self, values: Mapping[str, float]) -> Array:
        """Returns predicted - measured."""
        predicted = np.empty(self.rows)
        for group in self._groups:
            times = group.iterate(values)
            predicted[group.members] = np.broadcast_to(times.comm_fraction, len(group.members))
        return predicted - self.measured
