"""Collectives: limits, volumes, rings that share NICs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.costmodel.collectives import (
    Group,
    all_reduce_s,
    all_to_all_s,
    gather_s,
    group,
    hierarchical_all_reduce_s,
    send_s,
)
from wirecost.costmodel.inputs import Machine
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.nccl import takes_tree
from wirecost.spec import Precision, load_spec, stack_named, with_bandwidth


def machine(cluster: str = "dgx-h100", rate: str | None = None) -> Machine:
    return machine_of(with_bandwidth(load_spec("cluster", cluster), rate), stack_named("generic"), Precision.BF16)


def test_a_group_of_one_costs_nothing() -> None:
    m = machine()
    alone = group(1.0, 1.0, 8.0, m)
    assert float(all_reduce_s(1e9, alone, m)) == 0
    assert float(gather_s(1e9, alone, m)) == 0
    assert float(all_to_all_s(1e9, alone, m)) == 0


def test_an_all_reduce_is_twice_a_gather_for_large_messages() -> None:
    m = machine()
    members = group(8.0, 1.0, 8.0, m)
    assert float(all_reduce_s(1e11, members, m) / gather_s(1e11, members, m)) == pytest.approx(2, rel=1e-3)


def test_the_ring_moves_two_times_n_minus_one_over_n_bytes() -> None:
    m = machine()
    size = 1e12
    rate = m.intra_Bps * m.intra.efficiency
    assert float(all_reduce_s(size, group(8.0, 1.0, 8.0, m), m)) == pytest.approx(
        2 * 7 / 8 * size / rate, rel=2e-3
    )


@pytest.mark.parametrize(("stride", "rings"), [(1.0, 1.0), (2.0, 2.0), (8.0, 8.0), (16.0, 8.0)])
def test_rings_share_a_nodes_nics(stride: float, rings: float) -> None:
    m = machine("dgx-h100")
    members = group(16.0, stride, 512.0, m)
    assert members.rings == rings
    share = m.node_Bps * m.inter.efficiency / rings
    assert float(members.rate_Bps) == pytest.approx(min(share, m.intra_Bps * m.intra.efficiency))


def test_nics_that_gpus_share_lose_more_with_mixed_rings() -> None:
    m = machine("jean-zay-a100")  # 4 NICs for 8 GPUs
    mixed, own = group(16.0, 2.0, 64.0, m), group(8.0, 8.0, 64.0, m)
    assert float(mixed.rate_Bps * mixed.rings) == pytest.approx(float(own.rate_Bps * own.rings) * m.inter_shared)


@given(
    st.floats(1e3, 1e11),
    st.sampled_from([2.0, 4.0, 8.0, 16.0, 64.0, 512.0]),
    st.sampled_from([1.0, 2.0, 4.0, 8.0]),
    st.floats(1.01, 100),
)
def test_more_bytes_and_slower_networks_never_help(size: float, n: float, stride: float, factor: float) -> None:
    slow, fast = machine(rate="100 Gb/s"), machine(rate=f"{100 * factor} Gb/s")
    assert fast.node_Bps >= slow.node_Bps > 0
    for collective in (all_reduce_s, gather_s, hierarchical_all_reduce_s):
        groups = [group(n, stride, n * stride, m) for m in (slow, fast)]
        here = float(collective(size, groups[0], slow))
        trees = collective is all_reduce_s
        if not (trees and changes_algorithm((size, slow), (size, fast), n, groups[0])):
            assert here >= float(collective(size, groups[1], fast)) * (1 - 1e-12)
        if not (trees and changes_algorithm((size, slow), (size * factor, slow), n, groups[0])):
            assert float(collective(size * factor, groups[0], slow)) >= here * (1 - 1e-12)


def changes_algorithm(one: tuple[float, Machine], other: tuple[float, Machine], n: float, members: Group) -> bool:
    """NCCL goes by estimates, not by what is faster: where it takes its tree between two nodes for the one and its
    ring for the other, more bytes may take less time."""
    if not (members.nodes == 2 and members.per_node > 1):
        return False
    trees = {bool(takes_tree(size, n, m.two_node_tree)) for size, m in (one, other)}
    return len(trees) > 1


def test_a_tree_that_sets_in_may_be_faster_than_the_ring_was_for_half_the_bytes() -> None:
    m = machine(rate="100 Gb/s")
    two = group(16.0, 1.0, 16.0, m)
    ring, tree = 4 << 20, 8 << 20
    assert changes_algorithm((ring, m), (tree, m), 16.0, two)
    assert float(all_reduce_s(tree, two, m)) < float(all_reduce_s(ring, two, m))


def test_latency_grows_with_ranks_and_a_tree_bounds_it() -> None:
    m = machine()
    small = [float(all_reduce_s(1e3, group(n, 1.0, n, m), m)) for n in (8.0, 64.0, 512.0, 4096.0)]
    assert small == sorted(small)
    assert small[-1] / small[0] < 512  # a ring alone would take 512 times as many steps


def test_arrays_and_floats_agree() -> None:
    m = machine()
    n = np.array([1.0, 2.0, 8.0, 16.0, 128.0])
    many = all_reduce_s(1e8, group(n, 1.0, n, m), m)
    assert many == pytest.approx([float(all_reduce_s(1e8, group(x, 1.0, x, m), m)) for x in n.tolist()])


def test_a_send_between_nodes_shares_the_nics() -> None:
    m = machine("pinnacles-a-rdma")
    assert float(send_s(1e9, 1.0, m)) == pytest.approx(
        m.inter.step_s + 1e9 / (m.node_Bps * m.inter.efficiency / 2), rel=1e-6
    )
