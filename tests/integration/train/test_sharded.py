"""ZeRO, hybrid sharding and compressed gradients: the same parameters as one process, and the bytes of theory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.parity import STEPS, WORKLOADS, Trained, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Family, GradientTraffic, Plan, Precision

PLANS = {
    "zero1": Plan(name="zero1", data_parallel="zero1", bucket_bytes=40_000),
    "zero1-flat": Plan(name="zero1-flat", data_parallel="zero1", overlap=False),
    "zero2": Plan(name="zero2", data_parallel="zero2", bucket_bytes=40_000),
    "zero2-flat": Plan(name="zero2-flat", data_parallel="zero2", bucket_bytes=40_000, overlap=False),
    "ddp-flat": Plan(name="ddp-flat", data_parallel="ddp", bucket_bytes=40_000, overlap=False),
}


@pytest.mark.parametrize("ranks", [2, 4])
def test_x(ranks: int, tmp_path: Path) -> None:
    alone = reference(Family.GPT)
    cases = [experiment(p, WORKLOADS[Family.GPT], ranks) for p in PLANS.values()]
    for plan, trained in zip(PLANS, train_all(cases, tmp_path), strict=True):
        print(plan, trained.losses, alone.losses)
        print(trained.calls[0][0], trained.calls[0][-1])
        assert_same(trained, alone)
