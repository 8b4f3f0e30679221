"""Steps the parameters with summed gradients: loss scaling, clipping, AdamW. The host doesn't wait for the
device."""

from __future__ import annotations

import torch

from wirecost.breakdown import Phase
from wirecost.spec import Optimizer, Precision
from wirecost.train.adam import MasterAdamW
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.parallel.base import DataParallelStrategy
from wirecost.train.parallel.expert_data import Pieces, parts_of
from wirecost.train.recorder import Recorder

NORM_EPSILON = 1e-6
"""Prevents a division by a norm of zero. `torch.nn.utils.clip_grad_norm_` uses the same value."""


class LossScale:
    """Dynamic loss scaling on the device (Micikevicius et al. 2018, section 3.2) with PyTorch's update.

    Attributes:
        value: the loss scale, an FP32 scalar on the device.
        good_steps: steps without an overflow since the last change of the scale, an int32 scalar on the device.
    """

    def __init__(self, settings: Optimizer, device: torch.device) -> None:
        self.settings = settings.loss_scaling
        self.value = torch.tensor(self.settings.initial, dtype=torch.float32, device=device)
        self.good_steps = torch.zeros((), dtype=torch.int32, device=device)

    def update(self, overflow: torch.Tensor) -> None:
        """Adapts the scale after a step.

        Args:
            overflow: 1.0 if a gradient was not finite, otherwise 0.0, an FP32 scalar on the device.
        """
        torch._amp_update_scale_(self.value, self.good_steps, overflow, 2.0, 0.5, self.settings.window)  # pyright: ignore[reportPrivateImportUsage]
        self.value.clamp_(min=self.settings.smallest)


class Stepper:
    """Steps the optimizer with the gradients of a data-parallel strategy.

    Attributes:
        gradient_norm: the global norm of the last step's gradients before clipping, without the loss scale, a
            scalar on the device. None if neither clipping nor loss scaling needs it.
    """

    def __init__(
        self,
        strategy: DataParallelStrategy,
        settings: Optimizer,
        precision: Precision,
        groups: Groups,
        recorder: Recorder,
    ) -> None:
        self.strategy = strategy
        self.groups = groups
        self.recorder = recorder
        self.clipping = settings.gradient_clipping
        self.optimizer = MasterAdamW(strategy.optimizer_parameters(), settings)
        self.device = self.optimizer.masters[0].device
        self.scale = LossScale(settings, self.device) if precision is Precision.FP16 else None
        self._parts = [
            (part, [Communicator(g, recorder) for g in over if g.size > 1]) for part, over in parts_of(strategy)
        ]
        over = (groups.tensor, groups.pipeline)
        self._norm_over = [Communicator(g, recorder) for g in over if g.size > 1]
        self.gradient_norm: torch.Tensor | None = None

    def loss_factor(self, factor: float) -> float | torch.Tensor:
        """Returns `factor` times the loss scale. Losses are multiplied with it before backward."""
        return factor if self.scale is None else self.scale.value * factor

    def step(self) -> None:
        """Steps the optimizer with the strategy's gradients. In FP16 the step is skipped if one of them isn't
        finite."""
        if self.scale is None and self.clipping is None:
            with self.recorder.phase(Phase.OPTIMIZER):
                self.optimizer.step()
            return
        with self.recorder.phase(Phase.OPTIMIZER):
            norm = self._norm()
            divide_by = torch.ones_like(norm) if self.scale is None else self.scale.value.clone()
            self.gradient_norm = norm / divide_by
            if self.clipping is not None:
                divide_by /= (self.clipping / (self.gradient_norm + NORM_EPSILON)).clamp(max=1.0)
            overflow = None if self.scale is None else (~torch.isfinite(norm)).float()
            self.optimizer.step(divide_by, overflow)
            if self.scale is not None and overflow is not None:
                self.scale.update(overflow)

    def _norm(self) -> torch.Tensor:
        """Returns the global norm of the whole model's gradients with the loss scale. It is the same on every
        rank.

        A piece that several ranks hold counts once. Parameters that tensor parallelism doesn't split count on
        the first rank of the tensor group, and parameters that pipeline stages share on the first of these
        stages.
        """
        total = torch.zeros((), device=self.device)
        for part, part_over in self._parts:
            part_total = self._square_norm(part)
            for communicator in part_over:
                communicator.all_reduce(part_total, phase=Phase.GRAD_SYNC)
            total = total + part_total
        for communicator in self._norm_over:
            communicator.all_reduce(total, phase=Phase.GRAD_SYNC)
        return total.sqrt()

    def _square_norm(self, part: Pieces) -> torch.Tensor:
        """Returns the sum of the squares of this rank's pieces that no other rank counts."""
        pieces = [
            gradient
            for parameter, gradient in part.gradient_pieces()
            if (self.groups.tensor.index == 0 or hasattr(parameter, "tensor_dim"))
            and not getattr(parameter, "tied_copy", False)
        ]
        norms = torch._foreach_norm(pieces, 2, dtype=torch.float32) if pieces else []  # pyright: ignore[reportPrivateImportUsage]
        return torch.stack(norms).square().sum() if norms else torch.zeros((), device=self.device)
