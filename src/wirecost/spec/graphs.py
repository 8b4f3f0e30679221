"""When the iterations of an experiment are replayed from CUDA graphs."""

from __future__ import annotations

from wirecost.spec.experiment import Device, Experiment
from wirecost.spec.plan import DataParallel, GradientTraffic

CAPTURED_TRAFFIC = (GradientTraffic.NATIVE, GradientTraffic.FP16, GradientTraffic.BF16)
"""Gradient formats without state that the host replaces between iterations."""


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


def may_replay(experiment: Experiment) -> bool:
    """Returns whether iterations are replayed from CUDA graphs where the host would hold up the device.

    Without `graphs` in the plan, PyTorch's DistributedDataParallel isn't captured. With `graphs: true`, buckets of
    the engine's own take its place.
    """
    plan = experiment.plan
    if plan.graphs is None and plan.data_parallel is DataParallel.DDP and experiment.data_parallel_degree > 1:
        return False
    return plan.graphs is not False and obstacle_to_graphs(experiment) is None
