"""What the training loop asks of a data-parallel strategy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from torch import nn


class GradientSync(Protocol):
    """Keeps the gradients of the data-parallel group equal. `module` is what the loop calls.

    Gradients are summed; the loop divides each loss by ranks x micro-batches beforehand, which makes the sum
    the mean over the global batch and costs no pass over the gradients.
    """

    module: nn.Module

    def zero_grad(self) -> None: ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[object]:
        """Surrounds forward and backward of one micro-batch; only after the last are gradients synchronized."""
        ...

    def after_backward(self) -> None:
        """Synchronizes what backward did not; on return every gradient is the group's sum."""
        ...
