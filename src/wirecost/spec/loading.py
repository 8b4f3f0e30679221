"""Specifications from a preset's name or a YAML file, and clusters with other rates and sizes."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from wirecost.errors import SpecError
from wirecost.spec.cluster import GPU, Cluster, Link
from wirecost.spec.huggingface import is_configuration
from wirecost.spec.plan import Plan
from wirecost.spec.presets import named
from wirecost.spec.stack import Stack
from wirecost.spec.testbed import Testbed
from wirecost.spec.workload import Workload
from wirecost.spec.yaml import parse_yaml, read_yaml, validate
from wirecost.units import BitsPerSecond, parse_rate_bps

M = TypeVar("M", bound=BaseModel)
KINDS: dict[str, type[BaseModel]] = {
    "workload": Workload,
    "plan": Plan,
    "cluster": Cluster,
    "gpu": GPU,
    "link": Link,
    "stack": Stack,
    "testbed": Testbed,
}


def load_spec(kind: str, name_or_path: str, **changes: Any) -> Any:
    """Returns the specification of a preset's name or of a path ending in .yaml, with `changes` to its keys.

    A text in braces is the specification itself, as in a YAML file.

    Raises:
        SpecError: for an unknown name (with the known ones), an unreadable file, or invalid values.
    """
    given = {key: value for key, value in changes.items() if value is not None}
    path = Path(name_or_path)
    if name_or_path.lstrip().startswith("{"):
        where = f"{kind} in braces"
        data = {"name": "inline", **parse_yaml(name_or_path, where)}
    elif path.suffix in (".yaml", ".yml"):
        data = read_yaml(path)
        where = str(path)
        data.setdefault("name", path.stem)
    else:
        try:
            # A configuration may lack what the changes tell.
            is_file = kind == "workload" and is_configuration(name_or_path)
            data = named(kind, {"config": name_or_path, **given} if is_file else name_or_path)
        except ValueError as error:
            raise SpecError(str(error)) from error
        where = f"{kind} {name_or_path}"
    return validate(KINDS[kind], {**data, **given}, where)


@lru_cache
def stack_named(name: str) -> Stack:
    """Returns a stack preset.

    Raises:
        SpecError: for an unknown name, with those that are there.
    """
    try:
        return validate(Stack, named("stack", name), f"stack {name}")
    except ValueError as error:
        raise SpecError(str(error)) from error


def with_nodes(cluster: Cluster, gpus: int | None) -> Cluster:
    """Returns the cluster with enough nodes for `gpus`: a preset has the nodes that there are, not a limit."""
    if not gpus or gpus <= cluster.gpus:
        return cluster
    return cluster.model_copy(update={"nodes": -(-gpus // cluster.gpus_per_node)})


def with_bandwidth(cluster: Cluster, rate: str | float | None) -> Cluster:
    """Returns the cluster with another nominal rate of each node, in one direction, over as many NICs as before.

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
