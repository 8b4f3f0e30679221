"""Overlap as an efficiency: 1 hides all that fits under the other, 0 hides nothing.

Hiding is never free: kernels of both streams share SMs, memory bandwidth and launch queues (measured as an
efficiency in arXiv:2006.15704, figure 6). Where a stack tells the two apart, compute takes `contention` seconds
longer for every second that it hides: that is compute, as a measurement sees it, not communication.
"""

from __future__ import annotations

import numpy as np

from wirecost.model.inputs import Number


def exposed_s(comm_s: Number, compute_s: Number, efficiency: Number, contention: Number = 0.0) -> Number:
    """What of communication `compute_s` seconds of compute don't hide, while they take `contention` times as much
    longer as they hide: between 0 and `comm_s`."""
    longest = compute_s / (1 - efficiency * contention)  # all of it hiding, and longer for that
    return comm_s - efficiency * np.minimum(comm_s, longest)
