"""One data-parallel rank: gradients stay where autograd makes them.

A flat buffer would cost a pass that clears it and one that adds to it, for a collective that never happens.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from wirecost.train.parallel.whole import WholeParameters


class Alone(WholeParameters):
    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def after_backward(self) -> None:
        pass
