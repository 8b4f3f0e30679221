"""Checks whether iterations can be captured in CUDA graphs."""

from __future__ import annotations

from wirecost.spec import Experiment
from wirecost.spec.graphs import obstacle_to_graphs


def check_graphs(experiment: Experiment) -> str | None:
    """Returns why an experiment can't have the CUDA graphs of its plan, or None if it can or has none."""
    return obstacle_to_graphs(experiment) if experiment.plan.graphs else None
