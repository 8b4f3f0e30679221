"""Workloads, plans and clusters from a preset's name or a YAML file, with the rates and sizes changed at will."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from wirecost.errors import SpecError
from wirecost.spec import Cluster, Link, Plan, Stack, Workload, read_yaml, validate
from wirecost.spec.presets import named
from wirecost.units import BitsPerSecond, parse_rate_bps

M = TypeVar("M", bound=BaseModel)
KINDS: dict[str, type[BaseModel]] = {"workload": Workload, "plan": Plan, "cluster": Cluster, "stack": Stack}


def one(kind: str, given: str, **changes: Any) -> Any:
    """The specification that a preset's name or a path ending in .yaml means, with `changes` to its keys.

    Raises:
        SpecError: for an unknown name (with those that are there), an unreadable file, or what can't be.
    """
    path = Path(given)
    if path.suffix in (".yaml", ".yml"):
        data = read_yaml(path)
        where = str(path)
        data.setdefault("name", path.stem)
    else:
        try:
            data = named(kind, given)
        except ValueError as error:
            raise SpecError(str(error)) from error
        where = f"{kind} {given}"
    return validate(
        KINDS[kind], {**data, **{key: value for key, value in changes.items() if value is not None}}, where
    )


def with_nodes(cluster: Cluster, gpus: int | None) -> Cluster:
    """The cluster with enough nodes for `gpus`: a preset's node count is how many there are, not how many may
    be."""
    if not gpus or gpus <= cluster.gpus:
        return cluster
    return cluster.model_copy(update={"nodes": -(-gpus // cluster.gpus_per_node)})


def with_bandwidth(cluster: Cluster, rate: str | float | None) -> Cluster:
    """The cluster with another nominal rate of each node, in one direction, over as many NICs as before.

    Raises:
        SpecError: for a rate of zero or without a unit.
    """
    if rate is None:
        return cluster
    try:
        bps = parse_rate_bps(rate) if isinstance(rate, str) else float(rate)
    except ValueError as error:
        raise SpecError(f"bandwidth: {error}") from error
    if bps <= 0:
        raise SpecError(f"bandwidth: a rate must be positive, not {rate}")
    link: Link = cluster.inter_node.model_copy(update={"rate": BitsPerSecond(bps / cluster.nics_per_node)})
    # What was benchmarked at the old rate says nothing of the new one, but through the link's efficiency.
    return cluster.model_copy(update={"inter_node": link, "network_efficiency": None})
