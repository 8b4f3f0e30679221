"""The blocks of modules whose parameters FSDP2 gathers together: a unit's own modules, and its divided experts."""

from __future__ import annotations

from torch import nn
from torch.distributed.fsdp import FSDPModule


def are_experts(modules: list[nn.Module]) -> bool:
    """Returns whether modules are a unit's experts that are divided among ranks."""
    # FSDP2 replaces parameters, and with them their attributes.
    return getattr(modules[0], "divided", False)


def in_backward_order(blocks: list[list[nn.Module]]) -> list[list[nn.Module]]:
    """Returns the blocks of units in reverse order, but the experts of a unit after the unit."""
    units: list[list[list[nn.Module]]] = []
    for block in blocks:
        if are_experts(block):
            units[-1].append(block)
        else:
            units.append([block])
    return [block for unit in reversed(units) for block in unit]


def blocks_of_unit(unit: nn.Module, shared: set[nn.Parameter]) -> list[list[nn.Module]]:
    """Returns the blocks of a unit: its own modules, and then its experts if they are divided among ranks."""
    own = _own_modules(unit, shared)
    experts = [[m] for m in unit.modules() if are_experts([m])]
    return [own, *experts] if own else experts


def _own_modules(unit: nn.Module, shared: set[nn.Parameter]) -> list[nn.Module]:
    """Returns the unit, or its largest submodules without shared parameters. Returns none if most of it is
    shared."""
    sizes = {p: p.numel() for p in unit.parameters()}
    if 2 * sum(size for p, size in sizes.items() if p in shared) > sum(sizes.values()):
        return []
    return _unshared(unit, shared)


def _unshared(module: nn.Module, shared: set[nn.Parameter]) -> list[nn.Module]:
    if shared.isdisjoint(module.parameters()):
        return [module] if next(module.parameters(), None) is not None else []
    return [own for child in module.children() for own in _unshared(child, shared)]


def first_module(block: list[nn.Module]) -> FSDPModule:
    """Returns the first module of a block. Each module of a block has the block's state."""
    assert isinstance(block[0], FSDPModule)
    return block[0]
