"""One-line summaries of presets, for lists from which a reader chooses."""

from __future__ import annotations

import re
from typing import Any

from wirecost.spec.cluster import GPU, Cluster, Link
from wirecost.spec.loading import KINDS, load_spec
from wirecost.spec.parameters import count
from wirecost.spec.plan import Plan, Precision
from wirecost.spec.presets import named, text
from wirecost.spec.workload import Workload
from wirecost.units import format_rate_bps, format_size_bytes


def summary(kind: str, name: str) -> str:
    """Returns a line about a preset, without its name.

    Args:
        kind: a key of `wirecost.spec.presets.KINDS`.
    """
    if kind not in KINDS:
        return str(named(kind, name).get("description", ""))
    spec: Any = load_spec(kind, name)
    match spec:
        case Cluster():
            return _of_cluster(spec)
        case GPU():
            return _of_gpu(spec)
        case Link():
            return f"{format_rate_bps(spec.rate)}; {spec.source}"
        case Workload():
            return _of_workload(spec)
        case Plan():
            return _of_plan(spec, _comment(text(kind, name)))
        case _:
            return str(spec.description)


def _of_cluster(cluster: Cluster) -> str:
    nics = f"{cluster.nics_per_node} NIC{'s' if cluster.nics_per_node > 1 else ''}"
    return (
        f"{cluster.nodes} nodes, each with {cluster.gpus_per_node} {cluster.accelerator.name} "
        f"and {nics} of {format_rate_bps(cluster.inter_node.rate)} ({cluster.inter_node.name})"
    )


def _of_gpu(gpu: GPU) -> str:
    peaks = ", ".join(f"{value / 1e12:,.6g} {precision}" for precision, value in gpu.peak_flops.items())
    memory = f"{format_size_bytes(gpu.memory_bytes, 3)} of memory, {gpu.memory_bandwidth_Bps / 1e12:.3g} TB/s"
    return f"{memory}; dense TFLOP/s: {peaks}"


def _of_workload(workload: Workload) -> str:
    parameters = count(workload).total
    shown = f"{parameters / 1e9:,.4g} B" if parameters >= 1e9 else f"{parameters / 1e6:.4g} M"
    layers = f"{workload.layers} layers"
    if workload.decoder_layers:
        layers = f"{workload.layers} encoder and {workload.decoder_layers} decoder layers"
    experts = workload.mixture_of_experts
    return (
        f"{shown} parameters; {workload.family}, {layers}, hidden {workload.hidden}, "
        f"sequence {workload.sequence_length}{f', {experts.experts} experts' if experts else ''}"
    )


def _comment(yaml: str) -> str:
    """Returns the first sentence of the comment at the start of a preset."""
    lines: list[str] = []
    for line in yaml.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return re.split(r"\. (?=[A-Z])", " ".join(lines))[0].removesuffix(".")


def _of_plan(plan: Plan, comment: str) -> str:
    """Returns the comment and the precision, or without a comment the keys that differ from their defaults."""
    if comment:
        return comment if plan.precision is Precision.FP32 else f"{comment}; {plan.precision.upper()}"
    settings = plan.model_dump(mode="json", exclude_defaults=True, exclude={"name", "data_parallel"})
    shown = [f"{key.replace('_', ' ')} {value}" for key, value in settings.items()]
    return ", ".join([f"data parallel {plan.data_parallel}", *shown]).lower()
