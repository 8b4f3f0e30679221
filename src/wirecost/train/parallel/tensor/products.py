"""Products with a gathered matrix, whose own rows are computed while the other ranks' rows arrive."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wirecost.train.parallel.tensor.ranks import TensorRanks, flat
from wirecost.train.pending import DONE

Factor = tuple[torch.Tensor, torch.Tensor | None]
"""M, (inputs, outputs), and b, (outputs,) or None."""


class Gathered:
    """A matrix X of all ranks. With sequence parallelism it is gathered from now on.

    Args:
        x: (batch, sequence, inputs), X itself or, with sequence parallelism, this rank's slice of X.
        asynchronous: whether other work may be issued before the gather has ended.

    Attributes:
        whole: X, (batch, sequence, inputs). It is valid after `wait` or `products`.
    """

    def __init__(self, x: torch.Tensor, ranks: TensorRanks, *, asynchronous: bool) -> None:
        self.own = x
        self.ranks = ranks
        self.whole = x
        self._pending = DONE
        self._in_order = True
        if ranks.sequence:
            self._in_order = ranks.in_order(x)
            self._spread, self._pending = ranks.gather(x, asynchronous=asynchronous)
            if self._in_order:
                self.whole = ranks.whole(self._spread)

    def wait(self) -> torch.Tensor:
        """Waits for the gather, and returns `whole`."""
        if self._pending is not DONE:
            self.ranks.wait(self._pending)
            self._pending = DONE
        if not self._in_order:
            self.whole = self.ranks.whole(self._spread)
            self._in_order = True
        return self.whole

    def products(self, factors: Sequence[Factor]) -> list[torch.Tensor]:
        """Returns X M + b for each of `factors`, (batch, sequence, outputs)."""
        if self._pending is DONE or not self._in_order:
            self.wait()
            return [_product(self.whole, *factor) for factor in factors]
        rows, own = flat(self.whole), flat(self.own)
        products = [rows.new_empty((len(rows), matrix.shape[1])) for matrix, _ in factors]
        first, last = self.ranks.index * len(own), (self.ranks.index + 1) * len(own)
        _compute(products, own, factors, first, last)
        self.wait()
        for start, end in ((0, first), (last, len(rows))):
            if start < end:
                _compute(products, rows[start:end], factors, start, end)
        return [product.view(*self.whole.shape[:-1], -1) for product in products]


def _compute(
    products: Sequence[torch.Tensor], rows: torch.Tensor, factors: Sequence[Factor], start: int, end: int
) -> None:
    """Computes rows `start` to `end` of all products."""
    for product, (matrix, bias) in zip(products, factors, strict=True):
        if bias is None:
            torch.mm(rows, matrix, out=product[start:end])
        else:
            torch.addmm(bias, rows, matrix, out=product[start:end])


def _product(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product = flat(x) @ matrix if bias is None else torch.addmm(bias, flat(x), matrix)
    return product.view(*x.shape[:-1], -1)
