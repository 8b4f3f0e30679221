"""Computes the bytes and the ideal time (bytes / rate) of a collective on a ring."""

from __future__ import annotations

from wirecost.errors import one_of


def ring_bytes_sent(op: str, size_bytes: int, ranks: int) -> float:
    """Returns the bytes that each rank sends for a collective of total size S over n ranks on a ring.

    All-reduce 2(n-1)/n S, all-gather, reduce-scatter and all-to-all (n-1)/n S, the others S (nccl-tests,
    doc/PERFORMANCE.md).

    Raises:
        ValueError: for an unknown collective.
    """
    share = (ranks - 1) / ranks
    factors = {
        "all_reduce": 2 * share,
        "all_gather": share,
        "reduce_scatter": share,
        "all_to_all": share,
        "broadcast": 1.0,
        "reduce": 1.0,
        "send_recv": 1.0,
        "send": 1.0,
        "recv": 1.0,
    }
    if op not in factors:
        raise ValueError(one_of("collective", op, factors))
    return factors[op] * size_bytes


def ring_transfer_s(op: str, size_bytes: int, ranks: int, rate_bps: float) -> float:
    """Returns the seconds that a ring collective takes at a link rate in bits per second, without latency."""
    return ring_bytes_sent(op, size_bytes, ranks) * 8 / rate_bps
