"""The strategy for a single data-parallel rank: gradients stay where autograd creates them.

A flat buffer would have to be cleared and added to, but no collective would use it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from wirecost.train.parallel.whole import WholeParameters


class Alone(WholeParameters):
    """Data parallelism of one rank, which doesn't communicate."""

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def after_backward(self) -> None:
        pass
