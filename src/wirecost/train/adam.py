"""AdamW with FP32 master weights for 16-bit parameters (Micikevicius et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from wirecost.spec import Optimizer


class MasterAdamW:
    """AdamW that steps FP32 copies of 16-bit parameters and writes them back. FP32 parameters are stepped in
    place.

    If a parameter is sharded (DTensor), this rank's part is stepped.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], settings: Optimizer) -> None:
        self.settings = settings
        self.parameters = list(parameters)
        self.locals = [_local(p).detach() for p in self.parameters]
        self.masters = [p if p.dtype == torch.float32 else p.float() for p in self.locals]
        self.first_moments, self.second_moments = (
            [torch.zeros_like(m, memory_format=torch.preserve_format) for m in self.masters] for _ in range(2)
        )
        self.steps = torch.zeros((), dtype=torch.float32, device=self.masters[0].device)

    def step(self, divide_by: torch.Tensor | None = None, overflow: torch.Tensor | None = None) -> None:
        """Steps every parameter with its gradient.

        Args:
            divide_by: divisor of every gradient, a scalar on the device.
            overflow: 1.0 to skip the step, otherwise 0.0, a scalar on the device.

        Raises:
            RuntimeError: if a parameter has no gradient.
        """
        gradients = [_local(p.grad).detach() for p in self.parameters if p.grad is not None]
        if len(gradients) != len(self.parameters):
            raise RuntimeError("a parameter has no gradient: it took no part in the loss")
        self.steps.add_(1)
        # torch.optim.AdamW(fused=True) calls the same kernel, but makes every process load PyTorch's compiler.
        torch._fused_adamw_(  # pyright: ignore[reportPrivateImportUsage]
            self.masters,
            _as_float(gradients),
            self.first_moments,
            self.second_moments,
            [],
            [self.steps] * len(self.masters),
            lr=self.settings.learning_rate,
            beta1=self.settings.beta1,
            beta2=self.settings.beta2,
            weight_decay=self.settings.weight_decay,
            eps=self.settings.epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=divide_by,
            found_inf=overflow,
        )
        if overflow is not None:
            self.steps.sub_(overflow)
        self.refresh()

    def refresh(self) -> None:
        """Writes the masters back to the 16-bit parameters."""
        copies = [
            (value, master)
            for value, master in zip(self.locals, self.masters, strict=True)
            if value.dtype != torch.float32
        ]
        if copies:
            torch._foreach_copy_([value for value, _ in copies], [master for _, master in copies])  # pyright: ignore[reportPrivateImportUsage]

    def state(self) -> list[dict[str, torch.Tensor]]:
        """Returns the state of each parameter that the next step depends on, without copying it.

        The names are `master`, `exp_avg`, `exp_avg_sq` and `step`.
        """
        return [
            {"master": master, "exp_avg": first, "exp_avg_sq": second, "step": self.steps}
            for master, first, second in zip(self.masters, self.first_moments, self.second_moments, strict=True)
        ]


def _local(tensor: Any) -> torch.Tensor:
    # An isinstance check would need DTensor, whose import takes a second on every rank.
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _as_float(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns FP32 tensors unchanged and copies the others to FP32 in few kernels."""
    floats = [t if t.dtype == torch.float32 else torch.empty_like(t, dtype=torch.float32) for t in tensors]
    pairs = [(new, old) for new, old in zip(floats, tensors, strict=True) if new is not old]
    if pairs:
        torch._foreach_copy_([new for new, _ in pairs], [old for _, old in pairs])  # pyright: ignore[reportPrivateImportUsage]
    return floats
