"""Clipping and loss scaling, whatever shards the gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from support.parity import WORKLOADS, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Family, LossScaling, Plan, Precision, Recompute
from wirecost.spec.experiment import Optimizer

CLIPPED = Optimizer(epsilon=1e-5, gradient_clipping=0.2)
HALVED_TWICE = Optimizer(epsilon=1e-5, loss_scaling=LossScaling(initial=2.0**24))
STRATEGIES = [
    DataParallel.ALL_REDUCE,
    DataParallel.DDP,
    DataParallel.ZERO1,
    DataParallel.ZERO2,
    DataParallel.ZERO3,
]


def test_steps_do_not_depend_on_the_strategy(tmp_path: Path) -> None:
    workload = WORKLOADS[Family.GPT]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    plan = Plan(name="alone")
    half = Plan(name="half", precision=Precision.FP16)
    clipped, scaled, compiled = train_all(
        [
            experiment(plan, workload, 1, optimizer=CLIPPED),
            experiment(half, workload, 1, optimizer=HALVED_TWICE),
            experiment(Plan(name="compiled", compile=True), workload, 1),
        ],
        tmp_path / "one",
    )
    assert clipped.losses[-1] > reference(Family.GPT).losses[-1]  # it did clip
    assert_same(compiled, reference(Family.GPT))
    cases = [
        experiment(Plan(name="s", data_parallel=s, precision=precision), workload, 2, optimizer=optimizer)
        for s in STRATEGIES
        for precision, optimizer in ((Precision.FP32, CLIPPED), (Precision.FP16, HALVED_TWICE))
    ]
    again = [
        experiment(Plan(name="r", recompute=recompute, tensor_parallel=tensor), workload, 2)
        for recompute in (Recompute.SELECTIVE, Recompute.FULL)
        for tensor in (1, 2)
    ]
    # Compiled unit by unit, so that buckets leave while backward goes on.
    compiled_two = [
        experiment(Plan(name="c", data_parallel=s, compile=True, bucket_bytes=40_000), workload, 2)
        for s in (DataParallel.DDP, DataParallel.ZERO1)
    ]
    trained = train_all([*cases, *again, *compiled_two], tmp_path / "two")
    for result in trained[len(cases) :]:
        assert_same(result, reference(Family.GPT))
    trained = trained[: -len(compiled_two)]
    # What is computed again communicates again: of each layer's two all-reduces in forward that backward needs
    # the result of, once more in every micro-batch.
    selective, full = (len(r.calls[0][0]) for r in trained[len(cases) + 1 :: 2])
    assert selective < full
    trained = trained[: len(cases)]
    for result in trained[::2]:
        assert_same(result, clipped)
    # In 16 bits, losses agree to their precision; a scale that overflows skips the first steps everywhere alike.
    assert scaled.losses != pytest.approx(reference(Family.GPT).losses, rel=1e-3)
    for result in trained[1::2]:
        assert result.losses == pytest.approx(scaled.losses, rel=2e-3)
        for name, value in result.parameters.items():
            torch.testing.assert_close(value.float(), scaled.parameters[name].float(), rtol=0, atol=2e-3)
