"""Tables of communication as a fraction of the iteration, or OOM.

Columns: workload (a preset), gpus, global_batch, micro_batch, comm_fraction; and where the row was measured:
cluster, stack and precision (presets), or a testbed and protocol. Training is data parallel with one all-reduce
after backward, as in the table of the interconnect study (doi 10.1109/MM.2024.3360081). Nothing is assumed about
the cluster: a table that doesn't name it is refused, unless the user does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from wirecost.calibration.inputs.columns import CannotExpressError, number
from wirecost.calibration.inputs.row_machine import MachineKey
from wirecost.calibration.inputs.rows import TableRow
from wirecost.calibration.inputs.table import Parsed, Setting, identity, parsed
from wirecost.calibration.properties import Parts
from wirecost.costmodel.inputs import RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, Layout
from wirecost.costmodel.shape import shape_of
from wirecost.errors import SpecError, WirecostError
from wirecost.spec import (
    Cluster,
    MatrixPrecision,
    Precision,
    Recompute,
    Stack,
    Testbed,
    Workload,
    load_spec,
)
from wirecost.spec.presets import names, unknown_preset

RECOMPUTED = {
    Recompute.NONE: RECOMPUTE_NONE,
    Recompute.SELECTIVE: RECOMPUTE_SELECTIVE,
    Recompute.FULL: RECOMPUTE_FULL,
}
SHOWN = ("workload", "protocol", "scaling", "gpus", "micro_batch")
"""Columns that errors can be grouped by."""
WHERE = (
    "add the columns 'cluster' and 'stack' with names of presets, or 'testbed', or give --testbed "
    "(`wirecost presets testbeds`)"
)


def fraction_rows(table: Sequence[Mapping[str, str | None]], setting: Setting) -> Parsed[TableRow]:
    """Returns the rows that can be expressed, and the others with the reason.

    Raises:
        SpecError: if nothing says on which cluster the table was measured.
    """
    columns = set(table[0]) if table else set()
    if setting.testbed is None and not {"cluster", "testbed"} & columns:
        if setting.cluster is None:
            raise SpecError(f"nothing says on which cluster the fractions were measured: {WHERE}")
        protocols = {(row.get("protocol") or "").strip().lower() for row in table}
        if len(protocols) > 1:
            raise SpecError(f"the table has {len(protocols)} protocols, and --cluster is of one network: {WHERE}")
    return parsed(table, lambda row, index: fraction_row(row, index, setting))


def fraction_row(row: Mapping[str, str | None], index: int, setting: Setting) -> TableRow:
    """Returns one row.

    Raises:
        CannotExpressError: with the reason, where the row can't be expressed.
    """
    workload = _workload(row)
    testbed = _preset("testbed", row) or setting.testbed
    cluster = _cluster(row, testbed, setting.cluster)
    stack: Stack | None = _preset("stack", row) or (load_spec("stack", testbed.stack) if testbed else None)
    if stack is None:
        raise CannotExpressError("stack is empty")
    precision = _precision(row, testbed)
    gpus, micro, batch = (number(row, key) for key in ("gpus", "micro_batch", "global_batch"))
    if not gpus:
        raise CannotExpressError("gpus is empty")
    if not micro:
        if not batch:
            raise CannotExpressError("micro_batch and global_batch are empty")
        micro = batch / gpus
    layout = Layout(
        tensor=1.0,
        pipeline=1.0,
        data=gpus,
        micro_batch=micro,
        accumulation=max(1.0, (batch or micro * gpus) / (micro * gpus)),
        recompute=RECOMPUTED[_recompute(row, workload, testbed, stack)],
    )
    text = (row.get("comm_fraction") or "").strip()
    described = "/".join((row.get(k) or "") for k in ("workload", "protocol", "scaling", "gpus", "global_batch"))
    return TableRow(
        id=(row.get("id") or "").strip() or described.strip("/") or identity(row, index),
        source=(row.get("source") or "").strip() or (testbed.name if testbed else cluster.name),
        shape=shape_of(workload),
        layout=layout,
        key=_key(cluster, stack, precision),
        parts=Parts(cluster.accelerator, stack, cluster.intra_node, cluster.inter_node),
        measured=number(row, "comm_fraction") if text and text.upper() != "OOM" else None,
        parameters={key: (row.get(key) or "") for key in SHOWN},
    )


def _workload(row: Mapping[str, str | None]) -> Workload:
    name = re.sub(r"[^a-z0-9]+", "-", (row.get("workload") or "").lower()).strip("-")
    if name not in names("workload"):
        raise CannotExpressError(unknown_preset("workload", (row.get("workload") or "").strip()[:60]))
    return load_spec("workload", name)


def _cluster(row: Mapping[str, str | None], testbed: Testbed | None, given: Cluster | None) -> Cluster:
    if (own := _preset("cluster", row)) is not None:
        return own
    if testbed is not None:
        try:
            return load_spec("cluster", testbed.cluster(row.get("protocol") or ""))
        except ValueError as error:
            raise CannotExpressError(str(error)) from error
    if given is not None:
        return given
    raise CannotExpressError(f"the row doesn't say on which cluster it was measured: {WHERE}")


def _preset(kind: str, row: Mapping[str, str | None]) -> Any:
    """Returns the preset that the row's column names; None where it is empty. Files are not read for a table."""
    name = (row.get(kind) or "").strip()
    if not name:
        return None
    if name not in names(kind):
        raise CannotExpressError(unknown_preset(kind, name[:60]))
    try:
        return load_spec(kind, name)
    except WirecostError as error:
        raise CannotExpressError(str(error)) from error


def _precision(row: Mapping[str, str | None], testbed: Testbed | None) -> Precision:
    text = (row.get("precision") or "").strip().lower()
    if text:
        try:
            return Precision(text)
        except ValueError as error:
            raise CannotExpressError(f"unknown precision '{text[:40]}'") from error
    if testbed is None:
        raise CannotExpressError("precision is empty")
    return testbed.precision


def _recompute(
    row: Mapping[str, str | None], workload: Workload, testbed: Testbed | None, stack: Stack
) -> Recompute:
    text = (row.get("act_recompute") or "").strip().lower()
    if text:
        try:
            return Recompute(text)
        except ValueError as error:
            raise CannotExpressError(f"unknown act_recompute '{text[:40]}'") from error
    if testbed is not None:
        return testbed.recompute.get(workload.family, Recompute.NONE)
    return Recompute(stack.recomputation.default)


def _key(cluster: Cluster, stack: Stack, precision: Precision) -> MachineKey:
    return MachineKey(
        cluster.accelerator.name,
        stack.name,
        cluster.intra_node.name,
        cluster.intra_node.rate / 8,
        cluster.inter_node.name,
        cluster.node_rate_Bps,
        cluster.gpus_per_node,
        MatrixPrecision(precision),
        cluster.name,
    )
