"""Overlap: what hides, what it costs what hides it, and messages that a benchmark measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.model import predicted, seconds
from wirecost.costmodel.collectives import all_reduce_s, gather_s, group
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.overlap import exposed_s
from wirecost.spec import Precision, load_spec, stack_named
from wirecost.spec.efficiency import CollectiveEfficiency, Interval, Segment

SECONDS = st.floats(0, 100)
SHARE = st.floats(0, 0.99)


@given(SECONDS, SECONDS, SHARE, SHARE)
def test_no_more_is_hidden_than_there_is_time_for(
    comm: float, compute: float, efficiency: float, part: float
) -> None:
    exposed = float(exposed_s(comm, compute, efficiency, part))
    hidden = comm - exposed
    assert -1e-9 <= exposed <= comm + 1e-9
    assert hidden <= compute + part * hidden + 1e-9


@given(SECONDS, SECONDS, SHARE)
def test_without_contention_two_streams_take_the_longer_and_a_rest_of_the_shorter(
    comm: float, compute: float, efficiency: float
) -> None:
    both = compute + float(exposed_s(comm, compute, efficiency))
    assert both == pytest.approx(max(comm, compute) + (1 - efficiency) * min(comm, compute), abs=1e-9)


@given(SECONDS, SECONDS, SHARE, SHARE)
def test_overlap_is_never_slower_than_none(comm: float, compute: float, efficiency: float, part: float) -> None:
    exposed = float(exposed_s(comm, compute, efficiency, part))
    assert compute + part * (comm - exposed) + exposed <= compute + comm + 1e-9


@pytest.mark.parametrize("kind", ["ddp", "zero1", "zero2", "zero3"])
def test_what_hiding_costs_is_compute(kind: str) -> None:
    stack = stack_named("engine-cuda")
    free = stack.with_values({"data_parallel_contention": 0.0, "shard_contention": 0.0})
    # Gradients and parameters take so little time here that all of them could hide.
    costly, cheap = (
        predicted("gpt-1.3b", gpus=8, stack=s, data_parallel=kind, micro_batch=8).times for s in (stack, free)
    )
    share = stack.data_parallel.shard_contention if kind == "zero3" else stack.data_parallel.contention
    more = float(costly.compute_s - cheap.compute_s)
    assert more == pytest.approx(share * float(costly.hidden_comm_s), rel=1e-6)
    assert more > 0
    assert float(costly.exposed_comm_s) == pytest.approx(float(cheap.exposed_comm_s))
    assert float(costly.total_s - cheap.total_s) == pytest.approx(more, rel=1e-6)


def test_without_overlap_nothing_is_hidden_and_nothing_costs_more() -> None:
    stack = stack_named("engine-cuda")
    free = stack.with_values({"data_parallel_contention": 0.0})
    costly, cheap = (
        predicted("gpt-1.3b", gpus=8, stack=s, data_parallel="zero1", overlap=False).times for s in (stack, free)
    )
    assert float(costly.hidden_comm_s) == 0
    assert float(costly.total_s) == float(cheap.total_s)


def test_of_what_is_sent_in_parts_each_takes_what_a_message_of_its_size_took() -> None:
    nothing = Interval(low=0.0, high=0.0)
    some = Interval(low=1e9, high=1e9)
    curves = tuple(
        CollectiveEfficiency(
            collective=name,
            ranks=2,
            hosts=2,
            smallest_bytes=1,
            largest_bytes=1 << 30,
            segments=(Segment(from_bytes=0, intercept_ns=1e6, bandwidth_Bps=1e9),),
            latency_ns=1e6,
            latency_interval_ns=nothing,
            bus_bandwidth_Bps=1e9,
            bus_bandwidth_interval_Bps=some,
            error=0.0,
            points=3,
            source="made up",
        )
        for name in ("all_reduce", "reduce_scatter")
    )
    machine = machine_of(load_spec("cluster", "dgx-h100"), stack_named("generic"), Precision.BF16)
    machine = replace(machine, curves=curves)
    members = group(2.0, 8.0, 16.0, machine)
    assert float(members.nodes) == 2
    members = replace(members, rings=1.0)
    whole, parts = (float(all_reduce_s(1e9, members, machine, m)) for m in (np.inf, 1e8))
    assert whole == pytest.approx(1.001)
    assert parts == pytest.approx(1.010)
    scattered = gather_s(1e9, members, machine, "reduce_scatter", 1e8)
    assert float(scattered) == pytest.approx(1.010)
    # What is smaller than a part is one message.
    assert float(gather_s(1e7, members, machine, "reduce_scatter", 1e8)) == pytest.approx(0.011)


@pytest.mark.parametrize("kind", ["ddp", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize("gpus", [2, 8, 64])
def test_an_iteration_is_no_shorter_for_what_hiding_costs(kind: str, gpus: int) -> None:
    stack = stack_named("engine-cuda")
    free = stack.with_values({"data_parallel_contention": 0.0, "shard_contention": 0.0})
    costly, cheap = (predicted("gpt-1.3b", gpus=gpus, stack=s, data_parallel=kind) for s in (stack, free))
    assert seconds(costly) >= seconds(cheap) * (1 - 1e-9)


@pytest.mark.parametrize("tensor", [1, 4])
def test_hiding_costs_no_more_than_its_share_of_compute(tensor: int) -> None:
    """Most of such a backward is launches and other ranks' collectives, which nothing slows down."""
    stack = stack_named("engine-cuda")
    free = stack.with_values({"data_parallel_contention": 0.0})
    plan = {"data_parallel": "ddp", "tensor_parallel": tensor, "gpus": 2 * tensor, "micro_batch": 2}
    costly, cheap = (predicted("gpt-350m", "pinnacles-a-tcp", stack=s, **plan).times for s in (stack, free))
    more = float(costly.compute_s - cheap.compute_s)
    assert 0 < more <= stack.data_parallel.contention * float(cheap.compute_s) * (1 + 1e-9)
