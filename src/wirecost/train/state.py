"""Assembles the whole model's parameters from the ranks' parts."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from wirecost.train.engine import Engine
from wirecost.train.groups import Groups
from wirecost.train.parallel.tensor import whole_parameter


def full_parameters(engine: Engine) -> dict[str, torch.Tensor]:
    """Returns every parameter of the whole model on the CPU, by its name in the model before a plan splits it.

    Every rank calls it outside an iteration, and gets all parameters. It is meant for tests and small models.

    Raises:
        RuntimeError: if ranks hold different copies of a parameter.
    """
    engine.strategy.complete_parameters()
    own = {
        getattr(parameter, "tied_name", name): _whole(parameter, engine.groups).cpu()
        for name, parameter in engine.model.named_parameters()
    }
    parts: list[dict[str, torch.Tensor] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, own)
    merged: dict[str, torch.Tensor] = {}
    for part in parts:
        for name, value in (part or {}).items():
            if not torch.equal(merged.setdefault(name, value), value):
                raise RuntimeError(f"ranks hold different copies of {name}")
    return merged


def _whole(parameter: Any, groups: Groups) -> torch.Tensor:
    tensor_shard = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    full = whole_parameter(tensor_shard.detach(), parameter, groups.tensor)
    if groups.expert.size == 1:
        return full
    from wirecost.train.parallel.experts import whole_experts

    return whole_experts(full, parameter, groups)
