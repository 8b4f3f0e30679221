"""Clipping and loss scaling, whatever shards the gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from support.parity import WORKLOADS, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Family, LossScaling, Plan, Precision
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
    clipped, scaled = train_all(
        [
            experiment(plan, workload, 1, optimizer=CLIPPED),
            experiment(half, workload, 1, optimizer=HALVED_TWICE),
        ],
        tmp_path / "one",
    )
    assert clipped.losses[-1] > reference(Family.GPT).losses[-1]  # it did clip
    cases = [
        experiment(Plan(name="s", data_parallel=s, precision=precision), workload, 2, optimizer=optimizer)
        for s in STRATEGIES
        for precision, optimizer in ((Precision.FP32, CLIPPED), (Precision.FP16, HALVED_TWICE))
    ]
    trained = train_all(cases, tmp_path / "two")
    for result in trained[::2]:
        assert_same(result, clipped)
    # In 16 bits, losses agree to their precision; a scale that overflows skips the first steps everywhere alike.
    assert scaled.losses != pytest.approx(reference(Family.GPT).losses, rel=1e-3)
    for result in trained[1::2]:
        assert result.losses == pytest.approx(scaled.losses, rel=2e-3)
        for name, value in result.parameters.items():
            torch.testing.assert_close(value.float(), scaled.parameters[name].float(), rtol=0, atol=2e-3)
