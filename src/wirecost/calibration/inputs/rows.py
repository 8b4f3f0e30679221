"""Rows of published iteration times as configurations that the cost model can predict, or the reason why not.

Columns are those of the reference tables: n_layers, hidden, heads, kv_heads, ffn, vocab, seq, framework, gpu,
gpus_per_node, intra_link, intra_gbytes_s_per_gpu_uni, inter_link, inter_gbit_s_per_node, n_gpus, tp, pp, vpp, dp,
cp, ep, sharding, seq_par, act_recompute, mbs, gas, gbs, precision, iter_s, notes. What a row leaves open is
filled from a workload preset of the same dimensions or by the usual rules, and listed in `assumed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wirecost.calibration.inputs.columns import CannotExpressError, number
from wirecost.calibration.inputs.row_layout import Degrees, batches_of, check_row, degrees_of, layout_of_row
from wirecost.calibration.inputs.row_machine import (
    MachineKey,
    features_of,
    gpu_of,
    key_of_row,
    parts_of,
    pick_stack,
)
from wirecost.calibration.inputs.row_workload import head_share_of, workload_of
from wirecost.calibration.inputs.table import Parsed, identity, parsed
from wirecost.calibration.properties import Parts
from wirecost.costmodel.inputs import Layout, Shape
from wirecost.costmodel.setup import default_stack
from wirecost.costmodel.shape import shape_of
from wirecost.spec import GPU, Plan, Stack, Workload, stack_named

SHOWN = (
    "model", "gpu", "n_gpus", "hidden", "n_layers", "seq", "tp", "pp", "vpp", "dp", "cp", "ep", "mbs", "gas",
    "gbs", "sharding", "act_recompute", "precision",
)  # fmt: skip
"""Columns that errors can be grouped by."""


@dataclass
class TableRow:
    """One row as numbers. `measured` is in seconds, or a fraction of the iteration; None if the row has no figure.
    `assumed` lists what the row left open and how it was filled."""

    id: str
    source: str
    shape: Shape
    layout: Layout
    key: MachineKey
    parts: Parts
    measured: float | None
    parameters: dict[str, Any]
    assumed: dict[str, Any] = field(default_factory=dict)
    choose: bool = False
    """Whether the row leaves the micro-batch (and interleaving) open: the fastest that fits in memory is meant."""


def iteration_row(row: Mapping[str, str | None], index: int) -> TableRow:
    """Returns one row of a table of iteration times.

    Raises:
        CannotExpressError: with the reason, where the row can't be expressed.
    """
    assumed: dict[str, Any] = {}
    try:
        workload = workload_of(row, assumed)
    except ValueError as error:
        raise CannotExpressError(f"dimensions don't fit: {' '.join(str(error).split())[:160]}") from error
    device = gpu_of(row)
    degrees = degrees_of(row, assumed)
    batches = batches_of(row, degrees, assumed)
    stack = _stack_of(row, workload, device, degrees, assumed)
    check_row(row, workload, stack, degrees, batches)
    key = key_of_row(row, stack, degrees.world, assumed)
    return TableRow(
        id=identity(row, index),
        source=(row.get("source") or "").strip() or "unknown",
        shape=replace(shape_of(workload), head_share=head_share_of(row, workload)),
        layout=layout_of_row(row, workload, stack, degrees, batches, assumed),
        key=key,
        parts=parts_of(key),
        measured=number(row, "iter_s") or None,
        parameters={name: (row.get(name) or "").strip() for name in SHOWN},
        assumed=assumed,
        choose=batches.choose,
    )


def _stack_of(
    row: Mapping[str, str | None], workload: Workload, device: GPU, degrees: Degrees, assumed: dict[str, Any]
) -> Stack:
    """Returns the stack that a row's framework means, or the default of predictions where it names none."""
    framework = (row.get("framework") or "").strip().lower()
    if not framework:
        plan = Plan(
            name="row",
            tensor_parallel=degrees.tensor,
            pipeline_parallel=degrees.pipeline,
            context_parallel=degrees.context,
        )
        assumed["stack"] = default_stack(plan, device)
        return stack_named(assumed["stack"])
    sharding = (row.get("sharding") or "").lower()
    return pick_stack(framework, device.architecture, sharding, features_of(row, workload))


def iteration_rows(table: Sequence[Mapping[str, str | None]]) -> Parsed[TableRow]:
    """Returns the rows that can be expressed and carry a measured time, and the others with the reason."""

    def parse(row: Mapping[str, str | None], index: int) -> TableRow:
        parsed_row = iteration_row(row, index)
        if parsed_row.measured is None:
            raise CannotExpressError("no measured iteration time (iter_s is empty)")
        return parsed_row

    return parsed(table, parse)
