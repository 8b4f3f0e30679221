"""Ranges of what a prediction says besides the iteration time: the comm fraction, and the bandwidth that a job
needs.

The iteration is predicted again with each of its parts slower and faster: what a GPU computes, what the links
carry, and what is hidden. Each range is 90 %, and the ranges of the parts add in quadrature, because their errors
are independent. A part that was never fitted has a wider range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from wirecost.costmodel.inputs import scaled
from wirecost.costmodel.setup import Setup
from wirecost.prediction.diagnostics import interval_and_diagnostics
from wirecost.prediction.interval import EXPERTS, NETWORK_WIDTHS
from wirecost.prediction.predict import fraction_of
from wirecost.spec import Cluster, Stack, stack_named
from wirecost.spec.presets import names
from wirecost.spec.stack_costs import LAUNCH_TIMES

LEAST_NETWORK = 0.1
"""Half width of the rate of a measured link, in logarithms: clusters of one kind of link differ by this much."""
OVERLAP_ODDS = {True: 0.8, False: 1.3}
"""Half width of an overlap, in log-odds, for stacks that were fitted and that were not. Published tables determine
overlaps weakly, because most were measured on networks that hide everything."""
OVERLAPS = ("data_parallel_overlap", "shard_overlap", "scatter_overlap", "tensor_overlap")
OWN_STACKS = ("engine-", "torch-compile", "generic")
"""Stacks that are no training framework of somebody else's."""


@dataclass(frozen=True)
class Range:
    """A 90 % interval. None is no bound: no value suffices."""

    low: float | None
    high: float | None


def variants(setup: Setup) -> list[tuple[Setup, Setup]]:
    """Returns the setup with less and with more exposed communication, once for each part that is uncertain."""
    spread, _ = interval_and_diagnostics(setup)
    several = setup.gpus > setup.cluster.gpus_per_node
    link = setup.cluster.inter_node if several else setup.cluster.intra_node
    network = max(NETWORK_WIDTHS[link.provenance], LEAST_NETWORK)
    if setup.workload.mixture_of_experts is not None:
        network = math.hypot(network, EXPERTS)
    odds = OVERLAP_ODDS[setup.stack.is_measured]
    return [
        (_computing(setup, math.exp(-spread)), _computing(setup, math.exp(spread))),
        (_carrying(setup, math.exp(network)), _carrying(setup, math.exp(-network))),
        (_hiding(setup, odds), _hiding(setup, -odds)),
    ]


def comm_fraction_range(setup: Setup) -> Range:
    """Returns the range of a setup's predicted comm fraction."""
    return fraction_range(setup, fraction_of)


def fraction_range(setup: Setup, fraction: Callable[[Setup], float]) -> Range:
    """Returns the range of a setup's comm fraction; `fraction` predicts one."""
    base = fraction(setup)
    changes = [(fraction(less) - base, fraction(more) - base) for less, more in variants(setup)]
    low, high = _together(changes)
    return Range(max(base + low, 0.0), min(base + high, 1.0))


def need_range(setup: Setup, value: float, needed: Callable[[Setup], float | None]) -> Range:
    """Returns the range of the value that a setup needs, of which `value` is the prediction. The range has no
    upper end where no value suffices with one of the parts at the end of its own range."""
    changes: list[tuple[float, float]] = []
    for less, more in variants(setup):
        low, high = needed(less), needed(more)
        logs = [math.inf if end is None else math.log(end / value) for end in (low, high)]
        changes.append((min(logs), max(logs)))
    low, high = _together(changes)
    return Range(value * math.exp(low), None if math.isinf(high) else value * math.exp(high))


def over_stacks(setup: Setup, needed: Callable[[Setup], float | None]) -> dict[str, float | None]:
    """Returns the value that the setup needs under each fitted stack with the same kind of attention."""
    return {
        stack.name: needed(replace(setup, stack=stack))
        for stack in _fitted_stacks()
        if stack.attention.kind == setup.stack.attention.kind
    }


def _fitted_stacks() -> Iterable[Stack]:
    for name in names("stack"):
        if not name.startswith(OWN_STACKS):
            stack = stack_named(name)
            if stack.is_measured:
                yield stack


def _together(changes: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Returns the largest decrease and increase, the parts' in quadrature."""
    low = high = 0.0
    for change in changes:
        low = math.hypot(low, min(*change, 0.0))
        high = math.hypot(high, max(*change, 0.0))
    return -low, high


def _computing(setup: Setup, factor: float) -> Setup:
    """Returns the setup with GPUs and hosts of `factor` times the speed."""
    gpu = setup.cluster.accelerator
    changed = gpu.model_copy(
        update={
            "peak_flops": {name: peak * factor for name, peak in gpu.peak_flops.items()},
            "memory_bandwidth_Bps": gpu.memory_bandwidth_Bps * factor,
        }
    )
    host, iteration = setup.stack.host, setup.stack.iteration
    times = {name: scaled(getattr(host, name), 1 / factor) for name in LAUNCH_TIMES}
    once = {"once_s": iteration.once_s / factor}
    stack = setup.stack.model_copy(
        update={"host": host.model_copy(update=times), "iteration": iteration.model_copy(update=once)}
    )
    return replace(setup, cluster=setup.cluster.model_copy(update={"gpu": changed}), stack=stack)


def _carrying(setup: Setup, factor: float) -> Setup:
    """Returns the setup with links of `factor` times the rate."""
    return replace(setup, cluster=_with_rates(setup.cluster, factor))


def _with_rates(cluster: Cluster, factor: float) -> Cluster:
    links = {
        key: link.model_copy(update={"rate": type(link.rate)(link.rate * factor)})
        for key, link in (("intra_node", cluster.intra_node), ("inter_node", cluster.inter_node))
    }
    return cluster.model_copy(update=links)


def _hiding(setup: Setup, odds: float) -> Setup:
    """Returns the setup with overlaps whose log-odds are larger by `odds`."""
    values = {}
    for key in OVERLAPS:
        share = setup.stack.value(key)
        if share is not None and share > 0:
            share = min(share, 0.995)
            values[key] = 1 / (1 + math.exp(-(math.log(share / (1 - share)) + odds)))
    return replace(setup, stack=setup.stack.with_values(values))
