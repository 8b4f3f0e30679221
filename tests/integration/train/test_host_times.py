"""The engine's variants on a processor: what they call is exactly what a real group would be asked for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from support.parity import LLAMA
from support.traffic import tensor_parallel
from wirecost.spec import Device, Precision, Workload
from wirecost.train.hosttimes import Cost, HostRequest, MeasuredHost, measure_host
from wirecost.train.hosttimes.variants import LAYERS, VARIANTS, experiment_of

GPT = Workload(name="gpt", layers=4, hidden=32, heads=4, vocab_size=256, sequence_length=16)


@pytest.fixture(scope="module", params=[GPT, LLAMA], ids=lambda w: w.name)
def measured(request: pytest.FixtureRequest) -> MeasuredHost:
    asked = HostRequest(request.param, Precision.BF16, Device.CPU, warmup=1, iterations=1, rounds=3)
    return measure_host(asked)


def test_the_counts_are_those_of_the_engine(measured: MeasuredHost) -> None:
    workload, micro_batches = measured.workload, measured.micro_batches
    request = HostRequest(workload, Precision.BF16, Device.CPU)
    collectives = {}
    for cost in (Cost.TENSOR_COLLECTIVE, Cost.SEQUENCE_COLLECTIVE):
        plan = experiment_of(request, VARIANTS[cost], workload).plan
        calls = tensor_parallel(workload, plan, micro_batch=measured.micro_batch, micro_batches=micro_batches)
        collectives[cost] = calls.total()
    # Once an iteration, the gradients of norms and positions are summed.
    collectives[Cost.SEQUENCE_COLLECTIVE] += 1
    # The root, which holds a tied embedding, stays from forward to backward. Without one it holds nothing, and the
    # embedding and the head are units.
    gathers = 1 + 2 * workload.layers if workload.tied_embeddings else 2 * (workload.layers + 2)
    expected = collectives | {Cost.UNIT: micro_batches * gathers, Cost.TRANSFER: 2 * micro_batches}
    # One rank has half of its layers more than the variant with fewer.
    expected |= dict.fromkeys(LAYERS, micro_batches * workload.layers // 2)
    assert {cost: each.calls for cost, each in measured.costs.items()} == expected


def test_times_are_not_negative_and_what_is_unknown_says_why(measured: MeasuredHost) -> None:
    assert measured.issue_s.keys() == {variant.name for variant in VARIANTS.values()}
    assert all(spread.q1 > 0 for spread in measured.issue_s.values())
    for each in measured.costs.values():
        assert each.difference_s is not None, each
        assert each.each_s is None or each.each_s >= 0
        assert bool(each.each_s) == (each.note is None)
    data = measured.as_json()
    assert data.keys() == {
        "format_version", "workload", "precision", "device", "device_name", "micro_batch", "micro_batches",
        "issue_s", "costs",
    }  # fmt: skip
    assert all(cost.keys() == {"calls", "seconds", "spread_s", "note"} for cost in data["costs"].values())
