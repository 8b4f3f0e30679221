"""Checks whether iterations can be captured in CUDA graphs."""

from __future__ import annotations

from wirecost.spec import Device, Experiment, GradientTraffic

CAPTURED_TRAFFIC = (GradientTraffic.NATIVE, GradientTraffic.FP16, GradientTraffic.BF16)
"""Gradient formats without state that the host replaces between iterations."""


def check_graphs(experiment: Experiment) -> str | None:
    """Returns why an experiment can't have the CUDA graphs of its plan, or None if it can or has none."""
    return obstacle_to_graphs(experiment) if experiment.plan.graphs else None


def obstacle_to_graphs(experiment: Experiment) -> str | None:
    """Returns why the iterations of an experiment can't be replayed from CUDA graphs, or None if they can."""
    plan, workload = experiment.plan, experiment.workload
    if experiment.device is not Device.CUDA:
        return f"plan '{plan.name}': graphs are CUDA graphs, which need device cuda, not {experiment.device}"
    for name, degree in (
        ("pipeline_parallel", plan.pipeline_parallel),
        ("context_parallel", plan.context_parallel),
    ):
        if degree > 1:
            return f"plan '{plan.name}': graphs need {name} 1, not {degree}; leave graphs out"
    if workload.mixture_of_experts is not None:
        return (
            f"plan '{plan.name}': graphs need the same shapes in every iteration, but the experts of workload "
            f"'{workload.name}' get as many tokens as the router sends; leave graphs out"
        )
    if plan.gradient_traffic not in CAPTURED_TRAFFIC:
        return (
            f"plan '{plan.name}': graphs can't hold gradient_traffic {plan.gradient_traffic}; "
            f"use {', '.join(CAPTURED_TRAFFIC)}"
        )
    return None
