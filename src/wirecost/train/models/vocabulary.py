"""Fused logits and cross-entropy by chunks, so that all logits are never in memory at the same time.

Forward also computes the gradients while a chunk's logits exist (the idea of Hsu et al. 2024, arXiv:2410.10989,
section 3.2). They are the gradients of the sum of the losses. Backward divides by the number of targets and
applies a loss scale, so FP16 loses no precision. The computation is a custom operator, which torch.compile
doesn't trace.

Matrix products with an odd dimension don't use the fast path of the matrix units (NVIDIA, "Matrix Multiplication
Background User's Guide", section 4.1). With GPT-2's 50,257 words, an eager iteration of GPT-2-Medium would take a
quarter longer. The logits therefore have additional words that aren't targets. Parameters and communication are
unchanged.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

ALIGNMENT = 64
"""Number of words to which a vocabulary is padded: 128 bytes of 16-bit numbers."""

CHUNK_BYTES = 2**30
"""Size of a chunk's logits with 4 bytes each. Smaller chunks would write the weight's gradient more often."""


def chunk_for(vocabulary: int) -> int:
    """Returns the number of targets in a chunk.

    It is a power of two, which suits the matrix units and divides most batches of tokens.
    """
    return 1 << max(0, (CHUNK_BYTES // (4 * vocabulary)).bit_length() - 1)


def padding_for(vocabulary: int) -> int:
    """Returns how many words must be added to make a vocabulary a multiple of `ALIGNMENT`."""
    return -vocabulary % ALIGNMENT


def padded(weight: torch.Tensor, padding: int) -> torch.Tensor:
    """Returns a weight, (words, hidden), with `padding` further rows of zeros."""
    return functional.pad(weight, (0, 0, 0, padding)) if padding else weight


class _AlignedLogits(torch.autograd.Function):
    """Logits of a padded vocabulary. The weight without padding is kept for backward, because many
    micro-batches may be in flight."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        padding = padding_for(len(weight))
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        padded_bias = functional.pad(bias, (0, padding), value=-math.inf)
        return functional.linear(x, padded(weight, padding), padded_bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        words = len(weight)
        x_gradient = gradient @ padded(weight, padding_for(words))
        flat = gradient.flatten(0, -2)
        weight_gradient = (flat.t() @ x.flatten(0, -2))[:words]
        return x_gradient, weight_gradient, flat.sum(0)[:words] if ctx.biased else None


def aligned_logits(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Returns x weight^T + bias, (..., words), with padding words whose probability is 0.

    Args:
        x: (..., hidden).
        weight: (vocabulary, hidden).
        bias: (vocabulary,), or None.
    """
    if not padding_for(len(weight)):
        return functional.linear(x, weight, bias)
    return _AlignedLogits.apply(x, weight, bias)  # type: ignore[return-value]


def _losses_and_gradient(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sum of the losses in FP32, and its gradient by the logits, (targets, vocabulary) in their
    dtype."""
    values = logits.float()
    log_total = values.logsumexp(-1, keepdim=True)
    loss = (log_total - values.gather(-1, targets[:, None])).sum()
    is_target = torch.arange(values.shape[-1], device=values.device) == targets[:, None]
    return loss, ((values - log_total).exp() - is_target.float()).to(logits.dtype)


@functools.cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(_losses_and_gradient)


def _add_product(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Adds the product a b to `total` in FP32. On a GPU this is one pass, which never rounds to 16 bits."""
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
    """Returns the sum of the cross-entropies of softmax(x weight^T + bias), and its gradients.

    Args:
        x: (targets, hidden).
        weight: (vocabulary, hidden), of x's dtype.
        bias: (vocabulary,), or None.
        targets: int64 (targets,).
        chunk: number of targets in a chunk.
        compiled: whether torch.compile compiles the pass over the logits.

    Returns:
        The sum, and its gradients by x (in x's dtype), by weight and by bias (in FP32, empty without a bias).
    """
    softmax = _compiled() if compiled else _losses_and_gradient
    loss = torch.zeros((), dtype=torch.float32, device=x.device)
    x_gradient = torch.empty_like(x)
    words = len(weight)
    padding = padding_for(words)
    weight = padded(weight, padding)
    padded_bias = functional.pad(bias, (0, padding)) if padding and bias is not None else bias
    weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
    bias_gradient = torch.zeros(0 if bias is None else len(bias), dtype=torch.float32, device=x.device)
    chunks = zip(x.split(chunk), x_gradient.split(chunk), targets.split(chunk), strict=True)
    for x_chunk, x_chunk_gradient, target_chunk in chunks:
        logits = functional.linear(x_chunk, weight, padded_bias)
        logits[:, words:] = -math.inf
        chunk_loss, logit_gradient = softmax(logits, target_chunk)
        loss += chunk_loss
        torch.mm(logit_gradient, weight, out=x_chunk_gradient)
        _add_product(weight_gradient, logit_gradient.t(), x_chunk)
        if bias is not None:
            bias_gradient += logit_gradient[:, :words].sum(0, dtype=torch.float32)
    return loss, x_gradient, weight_gradient[:words], bias_gradient


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


def _save_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _, x_gradient, weight_gradient, bias_gradient = output
    ctx.save_for_backward(x_gradient, weight_gradient, bias_gradient)
    ctx.mark_non_differentiable(x_gradient, weight_gradient, bias_gradient)
    ctx.set_materialize_grads(False)
    ctx.dtype = inputs[1].dtype
    ctx.biased = inputs[2] is not None


def _backward(ctx: Any, loss_gradient: torch.Tensor, *_: None) -> tuple[torch.Tensor | None, ...]:
    x_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
    x_result = (x_gradient * loss_gradient).to(x_gradient.dtype)
    weight_result = (weight_gradient * loss_gradient).to(ctx.dtype)
    bias_result = (bias_gradient * loss_gradient).to(ctx.dtype) if ctx.biased else None
    return x_result, weight_result, bias_result, None, None, None


vocabulary_loss.register_autograd(_backward, setup_context=_save_gradients)
