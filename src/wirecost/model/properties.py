"""What may be fitted: named properties of a GPU, a link or a software stack, and machines with them replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wirecost.errors import SpecError, one_of
from wirecost.model.batch import machine_for
from wirecost.model.collectives import (
    DEFAULT_EFFICIENCY,
    DEFAULT_HALF_BYTES,
    DEFAULT_LATENCY_S,
    DEFAULT_SHARED,
    DEFAULT_STEP_S,
)
from wirecost.model.inputs import Machine
from wirecost.model.rows import MachineKey
from wirecost.spec import Stack
from wirecost.spec.presets import named, names

Values = dict[str, float]
"""Values by property: 'gpu A100-SXM-80GB matrix_efficiency', 'link nvlink3 efficiency', 'stack x
host_forward_s'."""

FREE: dict[str, dict[str, tuple[float, float]]] = {
    # property: the smallest and largest value that makes sense
    "gpu": {
        "matrix_efficiency": (0.3, 0.92),
        "matrix_traffic": (0.05, 6.0),
        "memory_efficiency": (0.5, 0.95),
        "power_throttle": (1e-3, 0.6),
        "attention_efficiency": (0.2, 2.0),
    },
    "link": {
        "efficiency": (0.03, 0.98),
        "latency": (2e-6, 1e-3),
        "latency_per_step": (0.2e-6, 2e-4),
        "half_rate_bytes": (1e2, 1e8),
        "shared_efficiency": (0.05, 1.0),
    },
    "stack": {
        "attention_efficiency": (0.05, 1.2),
        "attention_bytes_forward": (2.0, 40.0),
        "attention_bytes_backward": (4.0, 80.0),
        "matrix_efficiency": (0.4, 1.2),
        "low_precision_efficiency": (0.2, 1.0),
        "hidden_bytes": (4.0, 90.0),
        "sharded_bytes": (2.0, 60.0),
        "host_forward_s": (2e-5, 4e-3),
        "host_backward_s": (2e-5, 6e-3),
        "host_collective_s": (1e-6, 2e-3),
        "host_softmax_fallback_s": (1e-5, 2e-3),
        "host_masked": (0.5, 6.0),
        "host_sharpness": (1.0, 12.0),
        "vocabulary_bytes": (4.0, 120.0),
        "vocabulary_efficiency": (0.2, 1.0),
        "unaligned_efficiency": (0.1, 1.0),
        "host_vocabulary_s": (1e-4, 1e-2),
        "embedding_bytes": (4.0, 400.0),
        "optimizer_bytes": (10.0, 120.0),
        "iteration_s": (1e-4, 0.5),
        "gradient_sync_s": (1e-5, 0.1),
        "data_parallel_overlap": (0.02, 1.0),
        "shard_overlap": (0.02, 1.0),
        "collective_sync_s": (1e-8, 1e-4),
        "shard_messages": (1.0, 50.0),
        "tensor_overlap": (0.01, 0.9),
        "pipeline_exposed": (0.02, 6.0),
        "straggler": (1e-4, 0.1),
    },
}

_LINK_FIELDS = {
    "efficiency": ("efficiency", DEFAULT_EFFICIENCY),
    "latency": ("latency_s", DEFAULT_LATENCY_S),
    "latency_per_step": ("step_s", DEFAULT_STEP_S),
    "half_rate_bytes": ("half_bytes", DEFAULT_HALF_BYTES),
    "shared_efficiency": ("shared", {"intra": DEFAULT_SHARED, "inter": DEFAULT_SHARED}),
}


def split_property(name: str) -> tuple[str, str, str]:
    """'stack megatron-unfused hidden_bytes' in its three parts.

    Raises:
        SpecError: for a kind, preset or property that can't be fitted, with those that can.
    """
    parts = name.split()
    if len(parts) != 3:
        raise SpecError(f"a property is written 'stack NAME PROPERTY' (or gpu, link), not '{name}'")
    kind, preset, prop = parts
    if kind not in FREE:
        raise SpecError(one_of("kind of property", kind, FREE))
    if preset not in names(kind):
        raise SpecError(one_of(kind, preset, names(kind)))
    if prop not in FREE[kind]:
        raise SpecError(one_of(f"{kind} property", prop, FREE[kind]))
    return kind, preset, prop


def machine_with(key: MachineKey, values: Mapping[str, float]) -> Machine:
    """The machine of a key with some properties replaced."""
    machine = machine_for(key)
    changes: dict[str, Any] = {}
    stack: dict[str, float] = {}
    for name, value in values.items():
        kind, preset, prop = name.split()
        if kind == "gpu" and preset == key.gpu:
            if prop == "matrix_efficiency":
                # The machine's efficiency may hold the stack's share for low precisions as well.
                before = named("gpu", preset).get(prop, 0.75)
                changes[prop] = machine.matrix_efficiency / before * value
            else:
                changes[prop] = value
        elif kind == "link":
            for side, used in (("intra", key.intra), ("inter", key.inter)):
                if used == preset and not (side == "intra" and prop == "shared_efficiency"):
                    changes[f"{side}_{_LINK_FIELDS[prop][0]}"] = value
        elif kind == "stack" and preset == key.stack:
            stack[prop] = value
    if "low_precision_efficiency" in stack and key.precision in ("fp8", "fp4"):
        old = machine.stack.low_precision_efficiency
        changes["matrix_efficiency"] = (
            changes.get("matrix_efficiency", machine.matrix_efficiency) * stack["low_precision_efficiency"] / old
        )
    if stack:
        changes["stack"] = machine.stack.model_copy(update=stack)
    return replace(machine, **changes)


def start_value(name: str) -> float:
    """Where a fit of this property starts: its preset's value, or the default."""
    kind, preset, prop = split_property(name)
    data = named(kind, preset)
    if kind == "link":
        given = data.get(prop)
        side = "intra" if preset.startswith(("nvlink", "pcie", "xgmi")) else "inter"
        if given is None:
            return _LINK_FIELDS[prop][1][side]
        from wirecost.spec import Link

        return float(getattr(Link.model_validate(data), prop))
    if prop in data:
        return float(data[prop])
    from wirecost.spec import GPU

    default = (Stack if kind == "stack" else GPU).model_fields[prop].default
    return float(default)
