"""Computes the interval of a prediction.

A stack's `spread` is the 90 % quantile of |log(predicted / measured)| over rows left out of its fit. The error of
an unmeasured GPU or network is independent of it and adds in quadrature, by its provenance. Its size is that of
whole sources left out of the fit (benchmarks/held_out_sources.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wirecost.costmodel.workload_correction import residual_of
from wirecost.spec import GPU, Link, Provenance, Stack, Workload

if TYPE_CHECKING:
    from wirecost.calibration.inputs.rows import TableRow

LEVEL = 0.9
FACTOR = 2.0
"""Beyond twice the largest (or below half the smallest) calibrated value a prediction counts as extrapolated."""
WIDER = 1.5
"""The half width's factor for each dimension outside the fitted range. Errors of whole models and degrees left out
of a fit are 1.2 to 1.7 times those of single rows left out (docs/explanation/cost-model.md).
"""
GPU_WIDTHS = {
    Provenance.MEASURED: 0.0,
    Provenance.DERIVED: 0.2,
    Provenance.DATASHEET: 0.28,
    Provenance.JUDGEMENT: 0.28,
}
"""Half widths by the provenance of a GPU's figures. For derived ones: in two measured pairs of GPUs with the same
silicon, the other GPU's efficiencies change predictions by 0.05 and by 0.20.
"""
NETWORK_WIDTHS = {
    Provenance.MEASURED: 0.0,
    Provenance.DERIVED: 0.17,
    Provenance.DATASHEET: 0.17,
    Provenance.JUDGEMENT: 0.17,
}
"""Half widths by the provenance of the figures of the link between nodes."""
PLAN_WIDTHS = {
    Provenance.MEASURED: 0.0,
    Provenance.DERIVED: 0.28,
    Provenance.DATASHEET: 0.28,
    Provenance.JUDGEMENT: 0.28,
}
"""Half widths by the provenance of the plan's strategies. For those that were never compared with measurements, by
judgement that of an unmeasured GPU."""
UNMEASURED_STACK = 0.33
"""Least spread of a stack that was not fitted to measurements. A judged stack needs 0.21 to 0.39 on sources to
which it was not fitted.
"""
UNDETERMINED_SPREAD = 0.1
"""Half the interval's width if single runs don't determine how well they predict each other. The standard
deviation of repeated runs on quiet machines is 5 %.
"""
WIDEST = 1.5  # a factor of 4.5 either way; a wider interval is useless


def widened(
    stack: Stack,
    device: GPU,
    network: Link | None,
    beyond: Sequence[str] = (),
    plan: Provenance = Provenance.MEASURED,
) -> float:
    """Returns half the width of the interval for a GPU and (with several nodes) a network, with dimensions
    `beyond` the stack's calibrated range, and strategies of the provenance `plan`.
    """
    spread = stack.accuracy.spread
    if not stack.is_measured:
        spread = max(spread, UNMEASURED_STACK)
    of_network = 0.0 if network is None else NETWORK_WIDTHS[network.provenance]
    width = math.hypot(spread * WIDER ** len(beyond), GPU_WIDTHS[device.provenance], of_network, PLAN_WIDTHS[plan])
    return min(width, WIDEST)


def outside(stack: Stack, values: Mapping[str, float]) -> list[str]:
    """Returns the dimensions beyond twice the largest or below half the smallest calibrated value of the stack."""
    beyond = []
    for key, (low, high) in stack.accuracy.calibrated_range.items():
        value = values.get(key)
        if value is not None and not low / FACTOR <= value <= high * FACTOR:
            beyond.append(key)
    return beyond


def row_spread(row: TableRow) -> float:
    """Returns half the width, in natural logarithms, of the interval that holds nine in ten measurements like
    this row."""
    several = float(row.layout.world) > row.key.gpus_per_node
    network = row.parts.inter if several else None
    stack = row.parts.stack
    values = {
        "gpus": float(row.layout.world),
        "hidden": float(row.shape.hidden),
        "layers": float(row.shape.layers),
        "sequence_length": float(row.shape.sequence),
        "micro_batch": float(row.layout.micro_batch),
        "tensor_parallel": float(row.layout.tensor),
        "pipeline_parallel": float(row.layout.pipeline),
    }
    layout = row.layout
    unmeasured = max(float(layout.context), float(layout.expert)) > 1 or float(layout.node_sharding) > 0
    plan = Provenance.JUDGEMENT if unmeasured else Provenance.MEASURED
    return widened(stack, row.parts.gpu, network, outside(stack, values), plan)


def workload_spread(stack: Stack, workload: Workload, micro_batch: int) -> float:
    """Returns the stack's `spread` for this workload: smaller if runs of it are behind the prediction."""
    accuracy = stack.accuracy
    residual = residual_of(stack.accuracy.workload_corrections, workload, micro_batch)
    # A host's speed varies from run to run more than any device's.
    if residual is None or residual.host_s is not None:
        return accuracy.spread
    own = accuracy.workload_correction_spread
    return min(accuracy.spread, UNDETERMINED_SPREAD if own is None else own)
