"""Determines which algorithm NCCL uses for an all-reduce between two nodes, from NCCL's estimates of ring and
tree.

The figures are those of NCCL 2.28: src/graph/search.cc (the bandwidths that it tries, and that a tree may go one
step faster inside two nodes than between them) and src/graph/tuning.cc (what it takes off a tree's bandwidth).
NCCL uses the nominal rate of the interface, in GB/s. A veth pair reports 10 Gb/s whatever its actual rate.
"""

from __future__ import annotations

import numpy as np

from wirecost.costmodel.numbers import Flag, Number

VETH_BPS = 10e9
"""The rate that Linux reports for a veth pair (drivers/net/veth.c, veth_get_link_ksettings)."""
_TRIED = (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
_TRIED_ON_HOPPER = (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_TREE = 0.92
_TREE_ON_HOPPER = 0.85 * _TREE
"""Hopper's trees enter and leave a node at one GPU."""
_DISCOUNT = (0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9)
"""Factors by size, from 1 MiB on for each power of two (protocol Simple)."""
_FROM_BYTES = 1 << 20
_NO_DISCOUNT_BYTES = 1 << 30
_MARGIN = 1.05
"""Least advantage of the tree. Within it NCCL's estimates differ between machines, and rings were observed."""


def tree_share(interface_bps: float, architecture: str) -> float:
    """Returns a tree's estimated algorithm bandwidth on two nodes, as a share of one interface's nominal rate; 0
    if the collectives aren't NCCL's.
    """
    if architecture not in ("volta", "turing", "ampere", "ada", "hopper", "blackwell"):
        return 0.0
    hopper = architecture in ("hopper", "blackwell")
    tried = _TRIED_ON_HOPPER if hopper else _TRIED
    stated = interface_bps / 8e9
    index = next((i for i, speed in enumerate(tried) if speed <= stated), len(tried) - 1)
    gain = tried[max(index - 1, 0)] / tried[index]
    return (_TREE_ON_HOPPER if hopper else _TREE) * gain / 2


def takes_tree(size_bytes: Number, ranks: Number, tree: float) -> Flag:
    """Returns whether an all-reduce of `size_bytes` over all GPUs of two nodes uses the tree; `tree` is
    `tree_share`.

    A ring's algorithm bandwidth is n / (2 (n - 1)) of the interface's. Below 1 MiB latency decides, and the result
    is False.
    """
    power = np.log2(np.maximum(size_bytes, _FROM_BYTES) / _FROM_BYTES)
    discount = np.take(_DISCOUNT, np.minimum(power, len(_DISCOUNT) - 1).astype(int))
    discount = np.where(size_bytes >= _NO_DISCOUNT_BYTES, 1.0, discount)
    ring = ranks / (2 * np.maximum(ranks - 1, 1.0))
    return (size_bytes >= _FROM_BYTES) & (tree * discount > _MARGIN * ring)
