"""Computes a prediction's interval, with a diagnostic for everything that widens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.prediction.approximations import approximations
from wirecost.prediction.basis import HARDLY_MEASURED, unmeasured_parts, unmeasured_strategies
from wirecost.prediction.interval import outside, part_widths, widened, workload_spread
from wirecost.spec import GradientTraffic, Provenance, Stack
from wirecost.spec.provenance import Sourced

if TYPE_CHECKING:
    from wirecost.costmodel.setup import Setup


def interval_and_diagnostics(setup: Setup) -> tuple[float, list[Diagnostic]]:
    """Returns half the width of the interval in natural logarithms, and the diagnostics."""
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
    strategies, parts = unmeasured_strategies(setup.plan), unmeasured_parts(setup)
    further = part_widths(
        experts=setup.workload.mixture_of_experts is not None,
        tensor_between_nodes=setup.plan.tensor_parallel > setup.cluster.gpus_per_node,
        unmeasured_strategy=bool(strategies),
        unmeasured_part=bool(parts),
    )
    spread = widened(nearest, setup.cluster.accelerator, network, beyond, further)
    diagnostics = [_extrapolated(setup.stack, key, values[key]) for key in beyond]
    if setup.plan.gradient_traffic is not GradientTraffic.NATIVE:
        diagnostics.append(
            diagnostic(
                "compression_estimated",
                f"gradients travel as {setup.plan.gradient_traffic}: the time to compress them is that of "
                "wirecost's own engine, by the memory traffic of its passes",
            )
        )
    diagnostics += [diagnostic("model_approximated", text) for text in approximations(setup.workload)]
    if strategies:
        diagnostics.append(
            diagnostic(
                "uncalibrated_plan",
                f"{', '.join(strategies)}: the formulas are those of the literature, and were never compared with "
                "measurements; the interval is widened",
            )
        )
    if parts:
        diagnostics.append(
            diagnostic(
                "uncalibrated_model",
                f"{', '.join(parts)}: the formulas are those of the literature, and were {HARDLY_MEASURED}; the "
                "interval is widened",
            )
        )
    stack, gpu = setup.stack, setup.cluster.accelerator
    if not stack.is_measured:
        diagnostics.append(diagnostic("uncalibrated_stack", _unmeasured("stack", stack)))
    if not gpu.is_measured:
        diagnostics.append(diagnostic("uncalibrated_gpu", _unmeasured("GPU", gpu)))
    if network is not None and not network.is_measured:
        diagnostics.append(diagnostic("uncalibrated_network", _unmeasured("link", network)))
    return spread, diagnostics


def _extrapolated(stack: Stack, key: str, value: float) -> Diagnostic:
    low, high = stack.accuracy.calibrated_range[key]
    return diagnostic(
        "extrapolated",
        f"{key} {value} lies outside the {low:g} to {high:g} that stack '{stack.name}' was calibrated on; "
        "the interval is widened",
    )


def _unmeasured(kind: str, part: Sourced) -> str:
    """Returns the message about a part whose figures are not measured."""
    rests_on = {
        Provenance.DERIVED: f"its figures are derived ({part.calibration})",
        Provenance.DATASHEET: "its figures are a datasheet's, with the usual efficiencies",
        Provenance.JUDGEMENT: "its figures are estimates that nobody has measured",
    }
    return (
        f"{kind} '{part.name}' was never fitted to measurements: {rests_on[part.provenance]}; the interval is "
        "widened"
    )
