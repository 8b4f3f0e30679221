"""Gradients of biases."""

from __future__ import annotations

from functools import lru_cache

import torch

from wirecost.train.parallel.tensor.ranks import flat


@lru_cache(maxsize=16)
def _ones(rows: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.ones((1, rows), dtype=dtype, device=device)


def bias_gradient(gradient: torch.Tensor) -> torch.Tensor:
    """Returns the sum of `gradient`, (..., outputs), over all dimensions but the last: (outputs,).

    On a GPU, 16-bit values are summed by a product with ones. On an H200 that takes 0.6 of the time of
    `torch.sum`, which reads rows of a matrix in an order that suits sums along them.
    """
    rows = flat(gradient)
    if rows.is_cuda and rows.dtype in (torch.bfloat16, torch.float16):
        return (_ones(len(rows), rows.dtype, rows.device) @ rows).view(-1)
    return rows.sum(0)
