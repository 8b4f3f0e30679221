"""How far a measurement may lie from its prediction.

A stack's `spread` is the 90 % quantile of |log(predicted / measured)| over rows that its fit did not see. The
error of a GPU or network that wasn't measured is independent of it and adds in quadrature, by its provenance;
whole sources left out of the fit show how much that is (benchmarks/held_out_sources.py)."""

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
"""The half width's factor for each dimension outside what was fitted: whole models and degrees that a fit did not
see err 1.2 to 1.7 times as far as single rows that it did not see (docs/explanation/cost-model.md)."""
GPU_WIDTHS = {
    Provenance.MEASURED: 0.0,
    Provenance.DERIVED: 0.2,
    Provenance.DATASHEET: 0.28,
    Provenance.JUDGEMENT: 0.28,
}
"""Half widths by what a GPU's figures rest on. Derived ones: of two pairs of GPUs of one silicon that were each
measured, taking one's efficiencies for the other moves predictions by 0.05 and by 0.20."""
NETWORK_WIDTHS = {
    Provenance.MEASURED: 0.0,
    Provenance.DERIVED: 0.17,
    Provenance.DATASHEET: 0.17,
    Provenance.JUDGEMENT: 0.17,
}
"""Half widths by what the figures of the link between nodes rest on."""
UNMEASURED_STACK = 0.33
"""The least spread of a stack that was not fitted to measurements: a judged stack on sources that it was not
fitted to needs 0.21 to 0.39."""
UNDETERMINED_SPREAD = 0.1
"""Half the interval's width where single runs don't determine how well they predict each other: repeated runs on
quiet machines lie within 5 % of each other, as a standard deviation."""
WIDEST = 1.5  # a factor of 4.5 either way: an interval beyond says nothing


def widened(stack: Stack, device: GPU, network: Link | None, beyond: Sequence[str] = ()) -> float:
    """Returns half the width of the interval for that GPU and (where several nodes take part) that network, with
    dimensions `beyond` the stack's calibrated range."""
    spread = stack.accuracy.spread
    if not stack.is_measured:
        spread = max(spread, UNMEASURED_STACK)
    of_network = 0.0 if network is None else NETWORK_WIDTHS[network.provenance]
    width = math.hypot(spread * WIDER ** len(beyond), GPU_WIDTHS[device.provenance], of_network)
    return min(width, WIDEST)


def outside(stack: Stack, values: Mapping[str, float]) -> list[str]:
    """Returns the dimensions that lie beyond twice the largest, or below half the smallest, that the stack was
    calibrated on."""
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
    return widened(stack, row.parts.gpu, network, outside(stack, values))


def workload_spread(stack: Stack, workload: Workload, micro_batch: int) -> float:
    """Returns the stack's `spread` for this workload: smaller if runs of it are behind the prediction."""
    accuracy = stack.accuracy
    residual = residual_of(stack.accuracy.workload_corrections, workload, micro_batch)
    # A host's pace differs from run to run as no device's does.
    if residual is None or residual.host_s is not None:
        return accuracy.spread
    own = accuracy.workload_correction_spread
    return min(accuracy.spread, UNDETERMINED_SPREAD if own is None else own)
