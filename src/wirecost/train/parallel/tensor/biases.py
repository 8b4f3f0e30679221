"""Gradients of biases."""

from __future__ import annotations

from functools import cache

import torch

from wirecost.train.parallel.tensor.ranks import flat


def bias_gradient(gradient: torch.Tensor) -> torch.Tensor:
    """Returns the sum of `gradient`, (..., outputs), over all dimensions but the last: (outputs,).

    On a GPU, 16-bit values are summed by a product with ones. On an H200 that takes 0.6 of the time of
    `torch.sum`, which needs a memset besides. In a CUDA graph, the device stands still before that.
    """
    rows = flat(gradient)
    if rows.is_cuda and rows.dtype in (torch.bfloat16, torch.float16):
        return summed_by_product(rows)
    return rows.sum(0)


def summed_by_product(rows: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the rows of a matrix, (rows, columns), as a product: (columns,)."""
    return (_ones(len(rows), rows.dtype, rows.device) @ rows).view(-1)


# A graph reads the ones as long as it exists, so that they are kept.
@cache
def _ones(rows: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.ones((1, rows), dtype=dtype, device=device)
