"""Data-parallel strategies against one process: the same parameters, and exactly the bytes that theory says."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.parity import STEPS, WORKLOADS, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Family, Plan

PLANS = {
    "all-reduce": Plan(name="all-reduce"),
    "ddp": Plan(name="ddp", data_parallel=DataParallel.DDP, bucket_bytes=40_000),
}


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_strategy_trains_as_one_process_does(ranks: int, tmp_path: Path) -> None:
    workload = WORKLOADS[Family.GPT]
    alone = reference(Family.GPT)
    assert alone.calls == [[[]] * STEPS]
    parameters = sum(p.numel() for p in alone.parameters.values())
    cases = [experiment(plan, workload, ranks) for plan in PLANS.values()]
    for plan, trained in zip(PLANS, train_all(cases, tmp_path), strict=True):
        assert_same(trained, alone)
        for calls in (c for of_rank in trained.calls for c in of_rank):
            assert {c[:3] for c in calls} == {("all_reduce", "data_parallel", ranks)}
            assert sum(c[3] for c in calls) == 4 * parameters
        # PyTorch settles its buckets after the first iteration.
        (calls,) = {len(of_rank[-1]) for of_rank in trained.calls}
        assert calls == 1 if plan == "all-reduce" else calls >= 3
