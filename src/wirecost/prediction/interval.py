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
UNMEASURED_STRATEGY = 0.28
"""Half width that a strategy adds which was never compared with measurements: by judgement that of an unmeasured
GPU."""
UNMEASURED_STACK = 0.33
"""Least spread of a stack that was not fitted to measurements: the spread between stacks
(benchmarks/leave_one_out.py).
"""
MEASURED_STACK = 0.2
"""Least spread of a stack that was, for a source that was not: the spread between sources of one stack (the same
benchmark). A stack that users calibrate on their own machine has that of its runs instead."""
EXPERTS = 0.4
"""Half width that a mixture of experts adds. One code base's containers alone were fitted, and differ twofold for
the same model."""
TENSOR_BETWEEN_NODES = 0.4
"""Half width that tensor parallelism across nodes adds: two rows of such were fitted."""
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
    further: Sequence[float] = (),
) -> float:
    """Returns half the width of the interval for a GPU and (with several nodes) a network, with dimensions
    `beyond` the stack's calibrated range. `further` are the half widths of parts that were hardly fitted.
    """
    spread = stack.accuracy.spread
    if not stack.is_measured:
        spread = max(spread, UNMEASURED_STACK)
    of_network = 0.0 if network is None else NETWORK_WIDTHS[network.provenance]
    width = math.hypot(spread * WIDER ** len(beyond), GPU_WIDTHS[device.provenance], of_network, *further)
    return min(width, WIDEST)


def part_widths(
    *, experts: bool, tensor_between_nodes: bool, unmeasured_strategy: bool, unmeasured_part: bool = False
) -> list[float]:
    """Returns the half widths of the parts of a job that were hardly or never fitted."""
    widths = [EXPERTS] * experts + [TENSOR_BETWEEN_NODES] * tensor_between_nodes
    return widths + [UNMEASURED_STRATEGY] * unmeasured_strategy + [UNMEASURED_STRATEGY] * unmeasured_part


def outside(stack: Stack, values: Mapping[str, float]) -> list[str]:
    """Returns the dimensions beyond twice the largest or below half the smallest calibrated value of the stack."""
    beyond = []
    for key, (low, high) in stack.accuracy.calibrated_range.items():
        value = values.get(key)
        if value is not None and not low / FACTOR <= value <= high * FACTOR:
            beyond.append(key)
    return beyond


def row_spread(row: TableRow, fitted: tuple[bool, bool, bool] | None = None) -> float:
    """Returns half the width, in natural logarithms, of the interval that holds nine in ten measurements like
    this row. `fitted` says whether a fit had other rows of its stack, GPU and network, instead of their
    provenance."""
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
    further = part_widths(
        experts=float(row.shape.moe_share) > 0,
        tensor_between_nodes=float(row.layout.tensor) > row.key.gpus_per_node,
        unmeasured_strategy=float(row.layout.context) > 1,
        unmeasured_part=_has_unmeasured_part(row),
    )
    if fitted is None:
        return widened(stack, row.parts.gpu, network, outside(stack, values), further)
    of_stack, of_gpu, of_network = fitted
    widths = [
        MEASURED_STACK if of_stack else UNMEASURED_STACK,
        0.0 if of_gpu else GPU_WIDTHS[Provenance.DATASHEET],
        0.0 if of_network or network is None else NETWORK_WIDTHS[Provenance.DATASHEET],
    ]
    return min(math.hypot(*widths, *further), WIDEST)


def _has_unmeasured_part(row: TableRow) -> bool:
    """Returns whether a row's model has a part that `wirecost.prediction.basis.unmeasured_parts` names."""
    shape = row.shape
    windowed = float(shape.window_share) > 0 and float(shape.window) < float(shape.sequence)
    return (windowed and row.parts.stack.attention.kind == "fused") or float(shape.predicted) > 0


def workload_spread(stack: Stack, workload: Workload, micro_batch: int) -> float:
    """Returns the stack's `spread` for this workload: smaller if runs of it are behind the prediction."""
    accuracy = stack.accuracy
    residual = residual_of(stack.accuracy.workload_corrections, workload, micro_batch)
    # A host's speed varies from run to run more than any device's.
    if residual is None or residual.host_s is not None:
        return accuracy.spread
    own = accuracy.workload_correction_spread
    return min(accuracy.spread, UNDETERMINED_SPREAD if own is None else own)
