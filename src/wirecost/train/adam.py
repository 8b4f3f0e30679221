"""AdamW with FP32 master weights where parameters have 16 bits (Micikevicius et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from wirecost.spec import Optimizer


class MasterAdamW:
    """Steps FP32 copies of 16-bit parameters and writes them back; FP32 parameters are stepped in place."""

    def __init__(self, parameters: Iterable[nn.Parameter], settings: Optimizer) -> None:
        self.parameters = list(parameters)
        self.masters = [
            p if p.dtype == torch.float32 else p.detach().clone().float().requires_grad_() for p in self.parameters
        ]
        self.adam = torch.optim.AdamW(
            self.masters,
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def step(self) -> None:
        copies = [(p, m) for p, m in zip(self.parameters, self.masters, strict=True) if p is not m]
        for parameter, master in copies:
            assert parameter.grad is not None
            master.grad = parameter.grad.float()
        self.adam.step()
        with torch.no_grad():
            for parameter, master in copies:
                parameter.copy_(master)
                master.grad = None
