"""AdamW with FP32 master weights where parameters have 16 bits (Micikevicius et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from wirecost.spec import Optimizer


class MasterAdamW:
    """Steps FP32 copies of 16-bit parameters and writes them back; FP32 parameters are stepped in place.

    Of a parameter that is sharded (DTensor) it steps the part that this rank holds.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], settings: Optimizer) -> None:
        self.parameters = list(parameters)
        self.locals = [_local(p).detach() for p in self.parameters]
        self.masters = [nn.Parameter(p if p.dtype == torch.float32 else p.clone().float()) for p in self.locals]
        self.adam = torch.optim.AdamW(
            self.masters,
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def step(self, divide_by: torch.Tensor | None = None, overflow: torch.Tensor | None = None) -> None:
        """Args:
        divide_by: what every gradient is divided by on the way, a scalar on the device.
        overflow: nothing is stepped where this is 1.0, a scalar on the device.
        """
        gradients = [_local(p.grad).detach() for p in self.parameters if p.grad is not None]
        if len(gradients) != len(self.parameters):
            raise RuntimeError("a parameter has no gradient: it took no part in the loss")
        for master, gradient in zip(self.masters, _as_float(gradients), strict=True):
            master.grad = gradient
        # The fused kernel applies both without another pass; GradScaler hands them over in the same way.
        self.adam.grad_scale = divide_by  # type: ignore[attr-defined]
        self.adam.found_inf = overflow  # type: ignore[attr-defined]
        self.adam.step()
        copies = [
            (value, master.detach())
            for value, master in zip(self.locals, self.masters, strict=True)
            if value.dtype != torch.float32
        ]
        if copies:
            torch._foreach_copy_([value for value, _ in copies], [master for _, master in copies])  # pyright: ignore[reportPrivateImportUsage]
        for master in self.masters:
            master.grad = None


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _as_float(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """FP32 tensors as they are, the others copied in few kernels."""
    found = [t if t.dtype == torch.float32 else torch.empty_like(t, dtype=torch.float32) for t in tensors]
    pairs = [(new, old) for new, old in zip(found, tensors, strict=True) if new is not old]
    if pairs:
        torch._foreach_copy_([new for new, _ in pairs], [old for _, old in pairs])  # pyright: ignore[reportPrivateImportUsage]
    return found
