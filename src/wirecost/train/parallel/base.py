"""What the engine asks of a data-parallel strategy and of what runs the micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ParamSpec, Protocol, TypeVar

import torch
from torch import nn

from wirecost.train.groups import Group
from wirecost.train.models import Batch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """A hook that `torch.compile` must not trace: it communicates."""
    return torch.compiler.disable(function)  # type: ignore[return-value]


class DataParallelStrategy(Protocol):
    """Keeps the parameters of the data-parallel group equal. `module` is what runs forward.

    Gradients are summed; the loss is divided by ranks x micro-batches beforehand, which makes the sum the mean
    over the global batch and costs no pass over the gradients.
    """

    module: nn.Module

    def zero_grad(self) -> None: ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        """Surrounds forward and backward of one micro-batch; only after the last are gradients synchronized."""
        ...

    def after_backward(self) -> None:
        """Synchronizes what backward did not; on return gradients (or this rank's shard) are the group's sum."""
        ...

    def optimizer_parameters(self) -> Sequence[nn.Parameter]:
        """What this rank's optimizer steps, each with its `grad` after `after_backward`: the module's
        parameters, or this rank's shards of them."""
        ...

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """The summed gradient piece by piece: (the module's parameter, the part of its gradient that
        `optimizer_parameters` hold, perhaps flat). Clipping and overflow checks go over these, and what has to
        be done to the gradient of one parameter: a change in place counts."""
        ...

    @property
    def pieces_over(self) -> Group | None:
        """The group over which `gradient_pieces` are disjoint parts; None where every rank has all of them."""
        ...

    def after_step(self) -> None:
        """Brings the stepped parameters to every rank that needs them, or leaves that to the next iteration."""
        ...

    def complete_parameters(self) -> None:
        """Does what `after_step` left undone. To be called, by every rank, between iterations before anything
        else looks at the module: validation, a checkpoint, the end of training."""
        ...

    def carried(self) -> dict[str, torch.Tensor]:
        """What, beside parameters and the optimizer's state, this rank takes over from one iteration to the next
        (what a lossy compression still owes), by name: part of a checkpoint."""
        ...


class Execution(Protocol):
    """Runs forward and backward of every micro-batch of an iteration."""

    def run(self, micro_batches: Sequence[Batch], loss_factor: float | torch.Tensor) -> torch.Tensor | None:
        """Accumulates gradients of loss x `loss_factor`.

        Returns:
            The mean loss (unscaled, detached) over the micro-batches, on the device; None on a rank that does
            not hold the last unit of the model.
        """
        ...

    def evaluate(self, micro_batches: Sequence[Batch]) -> torch.Tensor | None:
        """The mean loss over the micro-batches without gradients; None as in `run`."""
        ...
