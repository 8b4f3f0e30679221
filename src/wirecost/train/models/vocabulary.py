"""Logits and cross-entropy in one, chunk by chunk: all the logits are never in memory at once.

Forward computes the gradients too, while a chunk's logits are there (the idea of Hsu et al. 2024,
arXiv:2410.10989, 3.2). They are those of the losses' sum: the division by the number of targets and a loss scale
come in backward, so that FP16 loses nothing. An operator of its own, so that torch.compile takes it as it is, in
every kind of graph.

Products with a side of an odd number of elements miss the matrix units' fast path (NVIDIA, "Matrix Multiplication
Background User's Guide", section 4.1): GPT-2's 50,257 words would take a quarter of an eager iteration of
GPT-2-Medium more. So the logits have words that no target is; parameters and what travels stay as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

ALIGNMENT = 64
"""Words: 128 bytes of 16-bit numbers."""

CHUNK_BYTES = 2**30
"""Of logits, as 4 bytes each. Smaller chunks write the weight's gradient more often than that memory is worth."""


def chunk_for(vocabulary: int) -> int:
    """The targets of a chunk: a power of two, as matrix units like it and batches of tokens divide by it."""
    return 1 << max(0, (CHUNK_BYTES // (4 * vocabulary)).bit_length() - 1)


def missing(vocabulary: int) -> int:
    """How many words more make a vocabulary a multiple of `ALIGNMENT`."""
    return -vocabulary % ALIGNMENT


def aligned(weight: torch.Tensor, more: int) -> torch.Tensor:
    """(words, hidden) with as many rows of zeros below."""
    return functional.pad(weight, (0, 0, 0, more)) if more else weight


class _AlignedLogits(torch.autograd.Function):
    """Keeps the weight for backward, not its copy with more words: there may be many micro-batches under way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        more = missing(len(weight))
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        return functional.linear(x, aligned(weight, more), functional.pad(bias, (0, more), value=-math.inf))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        words = len(weight)
        of_x = gradient @ aligned(weight, missing(words))
        flat = gradient.flatten(0, -2)
        of_weight = (flat.t() @ x.flatten(0, -2))[:words]
        return of_x, of_weight, flat.sum(0)[:words] if ctx.biased else None


def aligned_logits(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x weight^T + bias, (..., words), with the missing words, whose probability is 0."""
    if not missing(len(weight)):
        return functional.linear(x, weight, bias)
    return _AlignedLogits.apply(x, weight, bias)  # type: ignore[return-value]


def _losses_and_gradient(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses' sum, in FP32, and its gradient, (targets, vocabulary) in the logits' dtype."""
    values = logits.float()
    log_total = values.logsumexp(-1, keepdim=True)
    loss = (log_total - values.gather(-1, targets[:, None])).sum()
    is_target = torch.arange(values.shape[-1], device=values.device) == targets[:, None]
    return loss, ((values - log_total).exp() - is_target.float()).to(logits.dtype)


@functools.cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(_losses_and_gradient)


def _add_product(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """total += a b in FP32; on a GPU in one pass, and never rounded to 16 bits."""
    if a.is_cuda and a.dtype != torch.float32:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        total += a.mm(b)


@torch.library.custom_op("wirecost::vocabulary_loss", mutates_args=())
def vocabulary_loss(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    chunk: int,
    compiled: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sum of the cross-entropies of softmax(x weight^T + bias), and its gradients.

    Args:
        x: (targets, hidden).
        weight: (vocabulary, hidden), of x's dtype.
        bias: (vocabulary), or None.
        targets: int64 (targets).
        chunk: how many targets at once.
        compiled: the pass over the logits by torch.compile.

    Returns:
        The sum and its gradients by x (x's dtype), weight and bias (FP32; empty where there is no bias).
    """
    softmax = _compiled() if compiled else _losses_and_gradient
    loss = torch.zeros((), dtype=torch.float32, device=x.device)
    of_x = torch.empty_like(x)
    words = len(weight)
    more = missing(words)
    weight = aligned(weight, more)
    padded_bias = functional.pad(bias, (0, more)) if more and bias is not None else bias
    of_weight = torch.zeros_like(weight, dtype=torch.float32)
    of_bias = torch.zeros(0 if bias is None else len(bias), dtype=torch.float32, device=x.device)
    for part, part_of_x, wanted in zip(x.split(chunk), of_x.split(chunk), targets.split(chunk), strict=True):
        logits = functional.linear(part, weight, padded_bias)
        logits[:, words:] = -math.inf
        part_loss, gradient = softmax(logits, wanted)
        loss += part_loss
        torch.mm(gradient, weight, out=part_of_x)
        _add_product(of_weight, gradient.t(), part)
        if bias is not None:
            of_bias += gradient[:, :words].sum(0, dtype=torch.float32)
    return loss, of_x, of_weight[:words], of_bias


@vocabulary_loss.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    chunk: int,
    compiled: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        x.new_empty((), dtype=torch.float32),
        torch.empty_like(x),
        torch.empty_like(weight, dtype=torch.float32),
        x.new_empty(0 if bias is None else len(bias), dtype=torch.float32),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _, of_x, of_weight, of_bias = output
    ctx.save_for_backward(of_x, of_weight, of_bias)
    ctx.mark_non_differentiable(of_x, of_weight, of_bias)
    ctx.set_materialize_grads(False)
    ctx.dtype = inputs[1].dtype
    ctx.biased = inputs[2] is not None


def _backward(ctx: Any, of_loss: torch.Tensor, *_: None) -> tuple[torch.Tensor | None, ...]:
    of_x, of_weight, of_bias = ctx.saved_tensors
    bias = (of_bias * of_loss).to(ctx.dtype) if ctx.biased else None
    return (of_x * of_loss).to(of_x.dtype), (of_weight * of_loss).to(ctx.dtype), bias, None, None, None


vocabulary_loss.register_autograd(_backward, setup_context=_keep)
