"""The whole model's parameters, put together from the ranks' parts."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from wirecost.train.engine import Engine
from wirecost.train.groups import Group
from wirecost.train.parallel.tensor import whole_parameter


def full_parameters(engine: Engine) -> dict[str, torch.Tensor]:
    """Every parameter of the model by its name in the model that no plan has cut, on the CPU; to be called by
    every rank, outside an iteration. Meant for tests and small models: each rank gets all of it.

    Raises:
        RuntimeError: if ranks hold different copies of a parameter.
    """
    engine.strategy.complete_parameters()
    mine = {
        getattr(parameter, "tied_name", name): _whole(parameter, engine.groups.tensor).cpu()
        for name, parameter in engine.model.named_parameters()
    }
    found: list[dict[str, torch.Tensor] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    merged: dict[str, torch.Tensor] = {}
    for part in found:
        for name, value in (part or {}).items():
            if not torch.equal(merged.setdefault(name, value), value):
                raise RuntimeError(f"ranks hold different copies of {name}")
    return merged


def _whole(parameter: Any, tensor: Group) -> torch.Tensor:
    mine = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return whole_parameter(mine.detach(), parameter, tensor)
