"""The interfaces of data-parallel strategies and of the execution of micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import nn

from wirecost.train.groups import Group
from wirecost.train.models import Batch
from wirecost.train.models.base import uncompiled

__all__ = ["DataParallelStrategy", "Execution", "uncompiled"]


class DataParallelStrategy(Protocol):
    """Keeps the parameters of the data-parallel group equal.

    Gradients are summed. The loss is divided by ranks x micro-batches before backward, so the sum is the mean
    over the global batch, and no pass over the gradients is needed.

    Attributes:
        module: the module that runs forward.
    """

    module: nn.Module

    def zero_grad(self) -> None:
        """Prepares the gradients for a new iteration."""
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        """Returns the context for forward and backward of one micro-batch.

        Gradients needn't be synchronized before the `last` one of an iteration.
        """
        ...

    def after_backward(self) -> None:
        """Completes the synchronization. Afterwards the gradients, or this rank's shards, are sums over the
        group."""
        ...

    def optimizer_parameters(self) -> Sequence[nn.Parameter]:
        """Returns the parameters that this rank's optimizer steps: the module's, or this rank's shards of them.

        After `after_backward` each of them has its `grad`.
        """
        ...

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Yields the summed gradient in pieces, as (the module's parameter, this rank's part of its gradient).

        The part may be flat. Clipping and overflow checks read the pieces. Changes in place take effect.
        """
        ...

    @property
    def pieces_over(self) -> Group | None:
        """The group over which `gradient_pieces` are disjoint, or None if every rank has all pieces."""
        ...

    def after_step(self) -> None:
        """Brings the stepped parameters to every rank that needs them. The next iteration may complete this."""
        ...

    def complete_parameters(self) -> None:
        """Completes what `after_step` started.

        Every rank calls it between iterations before the module is used otherwise, as in validation or a
        checkpoint.
        """
        ...

    def carried(self) -> dict[str, torch.Tensor]:
        """Returns this rank's further state between iterations, by name, as a part of checkpoints.

        This is, for example, the accumulated error of a lossy compression. It excludes the parameters and the
        state of the optimizer.
        """
        ...


class Execution(Protocol):
    """Runs forward and backward of all micro-batches of an iteration."""

    def run(self, micro_batches: Sequence[Batch], loss_factor: float | torch.Tensor) -> torch.Tensor | None:
        """Accumulates the gradients of loss x `loss_factor`.

        Returns:
            The mean loss over the micro-batches without the factor, a detached scalar on the device. None on a
            rank without the last unit of the model.
        """
        ...

    def evaluate(self, micro_batches: Sequence[Batch]) -> torch.Tensor | None:
        """Returns the mean loss as `run` does, without gradients."""
        ...
