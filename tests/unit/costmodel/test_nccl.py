"""Which algorithm NCCL takes between two nodes, against what it was seen to take."""

from __future__ import annotations

import numpy as np
import pytest

from wirecost.costmodel.nccl import VETH_BPS, takes_tree, tree_share

MIB = 1 << 20


def takes(size_bytes: float, ranks: int, interface_bps: float, architecture: str) -> bool:
    return bool(takes_tree(size_bytes, float(ranks), tree_share(interface_bps, architecture)))


def test_two_emulated_hosts_of_two_h200() -> None:
    # Measured: gradients of 670 MB to 1.5 GB in one piece moved once each way, buckets of 25 MiB 1.5 times.
    for size in (670e6, 710e6, 1.475e9, 1.55e9):
        assert takes(size, 4, VETH_BPS, "hopper")
    assert not takes(25 * MIB, 4, VETH_BPS, "hopper")


def test_the_interconnect_studys_two_nodes_of_two_gpus() -> None:
    # Four nodes took 1.8 times as long as two over 10 Gb/s Ethernet (1.75 / 1 with a tree on two), 1.25 times over
    # IP on InfiniBand EDR (1.75 / 1.5 with rings).
    assert takes(1.5e9, 4, 10e9, "ampere")
    assert not takes(1.5e9, 4, 100e9, "ampere")


def test_dgx_nodes_take_rings() -> None:
    # 24 GB/s of bus bandwidth over one NIC of 200 Gb/s on two nodes of eight is a ring's.
    for size in (1e9, 1.5e9, 8e9):
        assert not takes(size, 16, 200e9, "ampere")
    assert not takes(4e9, 16, 400e9, "hopper")


@pytest.mark.parametrize("architecture", ["cpu", "cdna3"])
def test_only_nccl(architecture: str) -> None:
    assert tree_share(10e9, architecture) == 0
    assert not takes(1e9, 4, 10e9, architecture)


def test_short_messages_are_no_matter_of_bandwidth() -> None:
    sizes = np.array([0.0, 1.0, 4096.0, MIB - 1, 1e9])
    assert np.asarray(takes_tree(sizes, 4.0, tree_share(10e9, "ampere"))).tolist() == [False] * 4 + [True]


def test_a_slower_or_faster_interface_than_any_that_nccl_tries() -> None:
    assert tree_share(1e6, "hopper") == pytest.approx(tree_share(1e9, "hopper"))
    assert tree_share(1e12, "hopper") == pytest.approx(0.85 * 0.92 / 2)
