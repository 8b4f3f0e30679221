"""Where a prediction leaves what its stack was calibrated on: wider interval, and a warning that says which
way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.model.inputs import Machine
from wirecost.model.interval import is_measured, outside, widened
from wirecost.model.seen import spread_of
from wirecost.spec import GradientTraffic

if TYPE_CHECKING:
    from wirecost.model.setup import Setup


def outside_range(made: Setup, machine: Machine) -> tuple[float, list[Diagnostic]]:
    """The interval's half width in natural logarithms, and a warning for each dimension outside."""
    several = made.gpus > made.cluster.gpus_per_node
    network = made.cluster.inter_node if several else None
    values = {
        "gpus": made.gpus,
        "hidden": made.workload.hidden,
        "layers": made.workload.layers,
        "sequence_length": made.workload.sequence_length,
        "micro_batch": made.micro_batch,
        "tensor_parallel": made.plan.tensor_parallel,
        "pipeline_parallel": made.plan.pipeline_parallel,
    }
    beyond = outside(made.stack, values)
    nearest = made.stack.model_copy(update={"spread": spread_of(made.stack, made.workload, made.micro_batch)})
    spread = widened(nearest, made.cluster.accelerator, network, beyond)
    warnings = []
    for key in beyond:
        low, high = made.stack.calibrated_range[key]
        warnings.append(
            diagnostic(
                "extrapolated",
                f"{key} {values[key]} lies outside the {low:g} to {high:g} that stack "
                f"'{made.stack.name}' was calibrated on; the interval is widened",
            )
        )
    if made.plan.gradient_traffic is not GradientTraffic.NATIVE:
        warnings.append(
            diagnostic(
                "compression_estimated",
                f"gradients travel as {made.plan.gradient_traffic}: the time to compress them is that of "
                "wirecost's own engine, by the memory traffic of its passes",
            )
        )
    if made.stack.calibration is None:
        warnings.append(
            diagnostic(
                "uncalibrated_stack",
                f"stack '{made.stack.name}' was never fitted to measurements",
            )
        )
    gpu = made.cluster.accelerator
    if not is_measured(gpu):
        warnings.append(
            diagnostic(
                "uncalibrated_gpu",
                f"{gpu.name} was never fitted to measurements: its datasheet and usual "
                "efficiencies are used; the interval is widened",
            )
        )
    if network is not None and not is_measured(network):
        warnings.append(
            diagnostic(
                "uncalibrated_network",
                f"link '{network.name}' was never fitted to measurements: the interval is widened",
            )
        )
    return spread, warnings
