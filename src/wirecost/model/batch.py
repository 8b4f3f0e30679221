"""Many configurations at once: rows that share a machine become arrays, and go through the same formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from wirecost.model.inputs import Layout, Machine, Shape, as_array
from wirecost.model.iteration import Iteration, iterate, iterate_memory
from wirecost.model.machine import build, stack_named
from wirecost.model.rows import Configuration, MachineKey
from wirecost.spec import Link, gpu
from wirecost.spec.presets import named


def machine_for(key: MachineKey) -> Machine:
    """The machine that a row names."""
    intra = Link.model_validate(named("link", key.intra))
    inter = Link.model_validate(named("link", key.inter))
    return replace(
        build(
            gpu(key.gpu),
            stack_named(key.stack),
            intra=intra,
            inter=inter,
            gpus_per_node=key.gpus_per_node,
            node_Bps=key.node_Bps,
            precision=key.precision,
        ),
        intra_Bps=key.intra_Bps,
    )


def stacked_shape(shapes: Sequence[Shape]) -> Shape:
    return Shape(**{f.name: as_array([getattr(s, f.name) for s in shapes]) for f in fields(Shape)})


def stacked_layout(layouts: Sequence[Layout]) -> Layout:
    return Layout(**{f.name: as_array([getattr(x, f.name) for x in layouts]) for f in fields(Layout)})


def grouped(rows: Sequence[Configuration]) -> dict[MachineKey, list[int]]:
    groups: dict[MachineKey, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(row.key, []).append(index)
    return groups


def choose_open(row: Configuration, machine: Machine) -> Configuration:
    """For a row that names neither micro-batch nor interleaving: the fastest pair that fits in memory."""
    per_rank = row.layout.micro_batch * row.layout.accumulation
    stage = row.shape.layers / row.layout.pipeline
    micro = [b for b in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0) if per_rank % b == 0]
    chunks = [1.0]
    if row.layout.pipeline > 1:
        chunks += [v for v in (2.0, 3.0, 4.0, 6.0, 8.0) if stage % v == 0]
    layouts = [
        replace(row.layout, micro_batch=b, accumulation=per_rank / b, virtual=v) for b in micro for v in chunks
    ]
    many = stacked_layout(layouts)
    times = np.asarray(iterate(row.shape, many, machine).total_s)
    fits = np.asarray(iterate_memory(row.shape, many, machine).total) <= machine.memory_bytes
    times = np.where(fits, times, times + 1e9)
    best = layouts[int(np.argmin(times))]
    return replace(
        row,
        layout=best,
        assumed={**row.assumed, "mbs": int(best.micro_batch), "vpp": int(best.virtual)},
        choose=False,
    )


def predict_rows(
    rows: list[Configuration], machine_of: Callable[[MachineKey], Machine] = machine_for
) -> tuple[npt.NDArray[np.float64], list[Configuration]]:
    """Predicted seconds for every row, in order, and the rows with what was left open chosen."""
    predicted = np.zeros(len(rows))
    rows = list(rows)
    for key, members in grouped(rows).items():
        machine = machine_of(key)
        for index in members:
            if rows[index].choose:
                rows[index] = choose_open(rows[index], machine)
        result = evaluate([rows[i] for i in members], machine)
        predicted[members] = np.broadcast_to(result.total_s, len(members))
    return predicted, rows


def evaluate(rows: Sequence[Configuration], machine: Machine) -> Iteration:
    """One machine's rows through the vectorised path."""
    return iterate(stacked_shape([r.shape for r in rows]), stacked_layout([r.layout for r in rows]), machine)
