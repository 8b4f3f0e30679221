"""Kinds of operations, and in which of them one rank takes longer than another."""

from __future__ import annotations

import re
import statistics

from wirecost.trace.loads import steady_iterations
from wirecost.trace.names import function_name
from wirecost.trace.rank import RankTrace

HOST, COPIES, OTHER = "idle time of the device", "copies and fills", "other kernels"
# The first pattern that a kernel's name matches counts. Libraries: cuBLAS (nvjet, gemm), CUTLASS, hipBLASLt
# (Cijk), FlashAttention, cuDNN's and PyTorch's fused attention, PyTorch's multi-tensor optimizers.
_KINDS = (
    ("attention", re.compile(r"attention|attn|fmha|flash|sdpa", re.IGNORECASE)),
    ("convolutions", re.compile(r"conv(?!ert)|fprop|dgrad|wgrad", re.IGNORECASE)),
    ("matrix products", re.compile(r"gemm|gemv|matmul|nvjet|cutlass|cublas|xmma|Cijk_", re.IGNORECASE)),
    ("optimizer", re.compile(r"multi_tensor_apply|adam|lamb_|sgd", re.IGNORECASE)),
    ("normalisation", re.compile(r"norm", re.IGNORECASE)),
    ("softmax and loss", re.compile(r"softmax|nll_loss|cross_entropy", re.IGNORECASE)),
)


def kind_of(name: str) -> str:
    """Returns the kind of a kernel that computes."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), OTHER)


def excess_shares(own: RankTrace, model: RankTrace, scale: float) -> dict[str, float]:
    """Returns in which kinds of operations a rank takes longer than `scale` times a model, as shares of it.

    Kinds in which it takes less count as nothing; the shares sum to 1. Empty if it takes longer in none.
    """
    # Operators of processors go by one name.
    if (own is model and scale == 1.0) or own.device != "gpu":
        return {}
    mine, theirs = _per_iteration(own), _per_iteration(model)
    more = {kind: ns - scale * theirs.get(kind, 0.0) for kind, ns in mine.items()}
    more = {kind: ns for kind, ns in more.items() if ns > 0}
    total = sum(more.values())
    return {kind: ns / total for kind, ns in more.items()} if total else {}


def _per_iteration(trace: RankTrace) -> dict[str, float]:
    """Returns the ns of each kind of operation per iteration."""
    count = max(len(trace.iterations), 1)
    found: dict[str, float] = {}
    for use in trace.kernels:
        if use.communicates:
            continue
        kind = kind_of(function_name(use.name)) if use.kind == "kernel" else COPIES
        found[kind] = found.get(kind, 0.0) + use.total_ns / count
    (rows,) = steady_iterations([trace])
    if rows:
        found[HOST] = statistics.fmean(trace.iterations[n].parts.idle_ns for n in rows)
    return found
