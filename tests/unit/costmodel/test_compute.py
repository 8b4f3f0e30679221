"""Rates of matrix products."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from support.model import made
from wirecost.costmodel.compute import REFERENCE_SHARE, share_of_peak
from wirecost.costmodel.machine import machine_of
from wirecost.prediction.predict import predict
from wirecost.spec import Precision, load_spec, stack_named
from wirecost.spec.parameters import count

SHARES = st.floats(0.02, 0.99)
FACTORS = st.floats(0.4, 1.3)


@given(SHARES, FACTORS)
def test_no_stack_exceeds_the_peak_of_any_gpu(gpu: float, stack: float) -> None:
    assert 0 < share_of_peak(gpu, stack) < 1


@given(SHARES, FACTORS)
def test_a_faster_stack_is_faster_on_every_gpu(gpu: float, stack: float) -> None:
    assert share_of_peak(gpu, 1.0) == approx(gpu)
    assert (share_of_peak(gpu, stack) >= gpu) == (stack >= 1) or share_of_peak(gpu, stack) == approx(gpu)


@given(FACTORS)
def test_a_factor_applies_as_it_is_at_the_reference(stack: float) -> None:
    assert share_of_peak(REFERENCE_SHARE, stack) == approx(stack * REFERENCE_SHARE)


def device_s(workload: str, setting: Setting, **changes: float) -> float:
    """The seconds of compute of one iteration whose host takes no time."""
    stack = stack_named("engine-cuda").with_values(NO_LAUNCHES | ADDED | changes)
    return float(predict(made(workload, stack=stack, **setting)).times.compute_s)


Setting = dict[str, Any]
NO_LAUNCHES = dict.fromkeys(["host_forward_s", "host_backward_s", "host_vocabulary_s", "host_shard_s"], 0.0)
ADDED = {"gated_bytes": 0.0, "layer_gaps_s": 0.0, "shard_copy_bytes": 0.0, "host_gated": 1.5}
ALONE: Setting = {"gpus": 1, "micro_batch": 2, "global_batch": 4}
DGX = machine_of(load_spec("cluster", "dgx-h100"), stack_named("engine-cuda"), Precision.BF16)
MEMORY_BPS = DGX.memory_Bps * DGX.memory_efficiency


@pytest.mark.parametrize(("workload", "gated"), [("gpt-2-medium", 0), ("llama-3-8b", 1)])
def test_a_gated_layer_moves_more_and_has_more_gaps_between_kernels(workload: str, gated: int) -> None:
    spec = load_spec("workload", workload)
    plain = device_s(workload, ALONE)  # products at the power limit take a little longer
    # Backward moves twice what forward does, and has twice its gaps. The gate is as wide as what it gates.
    passes = 3 * spec.layers
    moved = passes * 4 * spec.sequence_length * 2 * spec.ffn / 4 * 40 / MEMORY_BPS
    assert device_s(workload, ALONE, gated_bytes=40.0) - plain == pytest.approx(gated * moved, rel=3e-3)
    gaps = passes * 2 * 1e-3 * (1 + 0.5 * gated)
    assert device_s(workload, ALONE, layer_gaps_s=1e-3) - plain == pytest.approx(gaps, rel=3e-3)


def test_only_zero_3_copies_what_it_gathers() -> None:
    held = count(load_spec("workload", "gpt-2-medium")).total
    for kind, ranks, copies in (("zero3", 2, 1), ("zero1", 2, 0), ("ddp", 2, 0), ("all_reduce", 1, 0)):
        setting: Setting = {"gpus": ranks, "micro_batch": 2, "global_batch": 4 * ranks, "data_parallel": kind}
        more = device_s("gpt-2-medium", setting, shard_copy_bytes=12.0) - device_s("gpt-2-medium", setting)
        assert more == pytest.approx(copies * 2 * held * 12 / MEMORY_BPS, rel=1e-6), kind
