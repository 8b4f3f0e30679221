"""Hosts whose pace isn't steady: ranks that wait for each other have the pace of the slowest one.

Of n ranks whose times scatter alike the slowest takes the expected largest of n normal draws longer than the mean,
in standard deviations (Harter 1961, doi 10.1093/biomet/48.1-2.151, table 1).
"""

from __future__ import annotations

import numpy as np

from wirecost.costmodel.numbers import Number

LARGEST = (0.0, 0.56419, 1.02938, 1.42360, 1.76599, 2.06967, 2.34373, 2.59459, 2.82695, 3.04403, 3.24844)
"""The expected largest of 1, 2, 4, ... 1024 draws."""


def slowest(ranks: Number) -> Number:
    """Returns the standard deviations by which the slowest of so many ranks lags behind their mean."""
    return np.interp(np.log2(np.maximum(ranks, 1.0)), np.arange(len(LARGEST)), LARGEST)
