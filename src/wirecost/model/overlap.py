"""Overlap as an efficiency: 1 hides all that fits under the other, 0 hides nothing.

Two streams of a and b seconds take max(a, b) + (1 - efficiency) min(a, b): kernels of both share SMs, memory
bandwidth and launch queues, so that hiding is never free (measured as an efficiency in arXiv:2006.15704, figure
6).
"""

from __future__ import annotations

import numpy as np

from wirecost.model.inputs import Number


def exposed_s(comm_s: Number, compute_s: Number, efficiency: Number) -> Number:
    """What communication adds to `compute_s` seconds of compute: between 0 and `comm_s`."""
    return np.maximum(compute_s, comm_s) + (1 - efficiency) * np.minimum(compute_s, comm_s) - compute_s
