"""BERT, T5 and Llama under data parallelism against one process: the same parameters, exactly the bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.parity import STEPS, WORKLOADS, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Family, Plan

PLANS = [
    Plan(name="all-reduce"),
    Plan(name="ddp", data_parallel=DataParallel.DDP, bucket_bytes=40_000),
]
FAMILIES = [Family.BERT, Family.T5]


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_family_trains_as_one_process_does(ranks: int, tmp_path: Path) -> None:
    cases = [(family, plan) for family in FAMILIES for plan in PLANS]
    runs = train_all([experiment(plan, WORKLOADS[family], ranks) for family, plan in cases], tmp_path)
    for (family, _), trained in zip(cases, runs, strict=True):
        alone = reference(family)
        assert_same(trained, alone)
        parameters = sum(p.numel() for p in alone.parameters.values())
        for of_rank in trained.calls:
            assert len(of_rank) == STEPS
            for calls in of_rank:
                assert {c[:3] for c in calls} == {("all_reduce", "data_parallel", ranks)}
                # No constant of a model (T5's distances) is sent.
                assert sum(c[3] for c in calls) == 4 * parameters
