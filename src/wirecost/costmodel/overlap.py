"""Overlap as an efficiency: 1 hides all that fits under the other, 0 hides nothing.

Kernels of both streams share SMs, memory bandwidth and launch queues (measured as an efficiency in
arXiv:2006.15704, figure 6). Where a stack states both, compute takes `contention` seconds longer for every second
that it hides. A measurement counts those as compute, not as communication.
"""

from __future__ import annotations

import numpy as np

from wirecost.costmodel.numbers import Number


def exposed_s(comm_s: Number, compute_s: Number, efficiency: Number, contention: Number = 0.0) -> Number:
    """Returns the exposed part of `comm_s` seconds of communication when `compute_s` seconds of computation can
    hide it, between 0 and `comm_s`. Computation takes `contention` seconds longer for each second that it
    hides."""
    longest = compute_s / (1 - efficiency * contention)  # where all of it hides communication
    return comm_s - efficiency * np.minimum(comm_s, longest)
