"""Checkpoints and validation: training goes on from where it was, and what is held out is not trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.parity import WORKLOADS, experiment, train_all
from wirecost.spec import DataParallel, Family, GradientTraffic, LossScaling, Periodic, Plan, Precision
from wirecost.spec.experiment import Optimizer

PLANS = [
    Plan(name="half", precision=Precision.FP16),
    Plan(name="zero1", data_parallel=DataParallel.ZERO1, precision=Precision.BF16),
    # In FP16 it starts with overflows, of which nothing may stay.
    Plan(name="powersgd", precision=Precision.FP16, gradient_traffic=GradientTraffic.POWERSGD),
    Plan(name="int8", data_parallel=DataParallel.DDP, gradient_traffic=GradientTraffic.INT8),
    Plan(name="zero3", data_parallel=DataParallel.ZERO3),
]


def test_training_goes_on_from_a_checkpoint_as_if_nothing_had_been(tmp_path: Path) -> None:
    common = {
        "periodic": Periodic(checkpoint_every=3, validate_every=2, validation_batches=2),
        "optimizer": Optimizer(loss_scaling=LossScaling(initial=2.0**22)),
    }
    cases, folders = [], []
    for plan in PLANS:
        for iterations, folder in ((8, None), (4, plan.name), (8, plan.name)):
            cases.append(experiment(plan, WORKLOADS[Family.GPT], 2, iterations=iterations, **common))
            folders.append(folder)
    trained = train_all(cases, tmp_path, folders)
    assert len(trained) == 3 * len(PLANS) > 0
    for plan, whole, before, after in zip(PLANS, trained[::3], trained[1::3], trained[2::3], strict=True):
        # Four iterations with a checkpoint after the third (number 2): the rest begins with number 3.
        assert before.losses == whole.losses[:4], plan.name
        assert after.losses == whole.losses[3:], plan.name
        for name, value in after.parameters.items():
            assert value.equal(whole.parameters[name]), (plan.name, name)
        for rank in (0, 1):
            validations = [e for e in whole.events[rank] if e["kind"] == "validation"]
            assert [e["after_iteration"] for e in validations] == [1, 3, 5, 7]
            again = [e["loss"] for e in after.events[rank] if e["kind"] == "validation"]
            assert again == [e["loss"] for e in validations[1:]]
            assert validations[0]["loss"] == pytest.approx(whole.losses[1], rel=0.1)
        assert not [e for e in whole.events[0] if e["kind"] == "checkpoint"]
        written = [sum(e["bytes"] for e in events if e["kind"] == "checkpoint") for events in after.events]
        # FP32 masters and two moments of each parameter, at least, between the ranks; no rank writes all of it.
        elements = sum(p.numel() for p in after.parameters.values())
        assert sum(written) >= 12 * elements
        if plan.data_parallel in (DataParallel.ZERO1, DataParallel.ZERO3):
            assert max(written) < 0.75 * sum(written)
        assert len(list((tmp_path / plan.name).iterdir())) == 2
