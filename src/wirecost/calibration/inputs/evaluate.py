"""Rows of tables through the cost model: rows that share a machine are predicted together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from wirecost.calibration.inputs.row_machine import MachineKey, machine_from
from wirecost.calibration.inputs.rows import TableRow
from wirecost.calibration.properties import Parts
from wirecost.costmodel.inputs import Layout, Machine, Shape
from wirecost.costmodel.iteration import Iteration, iterate, iterate_memory
from wirecost.costmodel.vectorised import stacked_layout, stacked_shape

MICRO_BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
CHUNKS = (2.0, 3.0, 4.0, 6.0, 8.0)


@dataclass(frozen=True)
class Group:
    """Rows that share a machine: `members` are their places among all rows."""

    key: MachineKey
    parts: Parts
    shape: Shape
    layout: Layout
    members: npt.NDArray[np.int64]

    def iterate(self, values: Mapping[str, float]) -> Iteration:
        """Returns the rows' iterations under values of properties."""
        parts = self.parts.with_values(values) if values else self.parts
        return iterate(self.shape, self.layout, machine_from(self.key, parts))


def grouped(rows: Sequence[TableRow]) -> list[Group]:
    """Returns the rows by their machines."""
    places: dict[MachineKey, list[int]] = {}
    for index, row in enumerate(rows):
        places.setdefault(row.key, []).append(index)
    return [
        Group(
            key,
            rows[members[0]].parts,
            stacked_shape([rows[i].shape for i in members]),
            stacked_layout([rows[i].layout for i in members]),
            np.array(members),
        )
        for key, members in places.items()
    ]


def machine_of_row(row: TableRow, values: Mapping[str, float]) -> Machine:
    """Returns a row's machine under values of properties."""
    return machine_from(row.key, row.parts.with_values(values) if values else row.parts)


def with_choices(rows: Sequence[TableRow], values: Mapping[str, float]) -> list[TableRow]:
    """Returns the rows with what they left open chosen, under values of properties."""
    return [chosen(row, machine_of_row(row, values)) if row.choose else row for row in rows]


def chosen(row: TableRow, machine: Machine) -> TableRow:
    """Returns a row that names neither micro-batch nor interleaving with the fastest pair that fits in memory."""
    per_rank = float(row.layout.micro_batch * row.layout.accumulation)
    stage = float(row.shape.layers / row.layout.pipeline)
    sizes = [b for b in MICRO_BATCHES if per_rank % b == 0]
    chunks = [1.0]
    if float(row.layout.pipeline) > 1:
        chunks += [v for v in CHUNKS if stage % v == 0]
    layouts = [
        replace(row.layout, micro_batch=b, accumulation=per_rank / b, virtual=v) for b in sizes for v in chunks
    ]
    many = stacked_layout(layouts)
    times = np.asarray(iterate(row.shape, many, machine).total_s)
    fits = np.asarray(iterate_memory(row.shape, many, machine).total) <= machine.memory_bytes
    best = layouts[int(np.argmin(np.where(fits, times, times + 1e9)))]
    assumed = {**row.assumed, "mbs": int(float(best.micro_batch)), "vpp": int(float(best.virtual))}
    return replace(row, layout=best, assumed=assumed, choose=False)


def predict_rows(
    rows: Sequence[TableRow], values: Mapping[str, float] | None = None
) -> tuple[npt.NDArray[np.float64], list[TableRow]]:
    """Returns the predicted seconds of every row, in order, and the rows with what was left open chosen."""
    values = values or {}
    rows = with_choices(rows, values)
    predicted = np.zeros(len(rows))
    for group in grouped(rows):
        predicted[group.members] = np.broadcast_to(group.iterate(values).total_s, len(group.members))
    return predicted, rows
