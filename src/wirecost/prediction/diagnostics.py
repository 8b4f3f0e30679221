"""How far to trust a prediction: its interval, and a warning for everything that widens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.breakdown import ResultWarning
from wirecost.prediction.interval import outside, widened, workload_spread
from wirecost.spec import GradientTraffic, Provenance, Stack
from wirecost.spec.provenance import Sourced

if TYPE_CHECKING:
    from wirecost.costmodel.setup import Setup


def interval_and_warnings(setup: Setup) -> tuple[float, list[ResultWarning]]:
    """Returns half the width of the interval in natural logarithms, and the warnings."""
    several = setup.gpus > setup.cluster.gpus_per_node
    network = setup.cluster.inter_node if several else None
    values = {
        "gpus": setup.gpus,
        "hidden": setup.workload.hidden,
        "layers": setup.workload.layers,
        "sequence_length": setup.workload.sequence_length,
        "micro_batch": setup.micro_batch,
        "tensor_parallel": setup.plan.tensor_parallel,
        "pipeline_parallel": setup.plan.pipeline_parallel,
    }
    beyond = outside(setup.stack, values)
    nearest = setup.stack.with_values({"spread": workload_spread(setup.stack, setup.workload, setup.micro_batch)})
    spread = widened(nearest, setup.cluster.accelerator, network, beyond)
    warnings = [_extrapolated(setup.stack, key, values[key]) for key in beyond]
    if setup.plan.gradient_traffic is not GradientTraffic.NATIVE:
        warnings.append(
            ResultWarning(
                code="compression_estimated",
                message=f"gradients travel as {setup.plan.gradient_traffic}: the time to compress them is that of "
                "wirecost's own engine, by the memory traffic of its passes",
            )
        )
    parts: list[tuple[str, str, Sourced | None, str]] = [
        ("uncalibrated_stack", "stack", setup.stack, "your own runs"),
        ("uncalibrated_gpu", "GPU", setup.cluster.accelerator, "runs on it"),
        ("uncalibrated_network", "link", network, "a benchmark"),
    ]
    for code, kind, part, on in parts:
        if part is not None and not part.is_measured:
            warnings.append(_unmeasured(code, kind, part, on))
    return spread, warnings


def _extrapolated(stack: Stack, key: str, value: float) -> ResultWarning:
    low, high = stack.accuracy.calibrated_range[key]
    return ResultWarning(
        code="extrapolated",
        message=f"{key} {value} lies outside the {low:g} to {high:g} that stack '{stack.name}' was calibrated on; "
        "the interval is widened",
    )


def _unmeasured(code: str, kind: str, part: Sourced, on: str) -> ResultWarning:
    rests_on = {
        Provenance.DERIVED: f"its figures are derived ({part.calibration})",
        Provenance.DATASHEET: "its figures are a datasheet's, with the usual efficiencies",
        Provenance.JUDGEMENT: "its figures are by judgement",
    }
    return ResultWarning(
        code=code,
        message=f"{kind} '{part.name}' was never fitted to measurements: "
        f"{rests_on[part.provenance]}; the interval is widened; calibrate on {on}",
    )
