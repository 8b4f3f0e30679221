"""Pipelines against one process: the same parameters, and exactly the messages of theory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.parity import WORKLOADS, Trained, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Experiment, Family, PipelineSchedule, Plan, RankOrder

GPT = WORKLOADS[Family.GPT]
GPIPE, ONE_F_ONE_B, INTERLEAVED = PipelineSchedule


def plan(schedule: PipelineSchedule, **settings: Any) -> Plan:
    settings = {"pipeline_parallel": 2, "virtual_stages": 2 if schedule is INTERLEAVED else 1} | settings
    return Plan(name="plan", pipeline_schedule=schedule, bucket_bytes=40_000, **settings)


def cases(ranks: int) -> list[Experiment]:
    if ranks == 2:
        return [experiment(plan(schedule), WORKLOADS[family], 2) for schedule in PipelineSchedule for family in WORKLOADS]
    longer = GPT.model_copy(update={"layers": 8})
    found = [experiment(plan(s, pipeline_parallel=4), WORKLOADS[f], 4) for s in (GPIPE, ONE_F_ONE_B) for f in WORKLOADS]
    found.append(experiment(plan(INTERLEAVED, pipeline_parallel=4), longer, 4))
    for schedule in PipelineSchedule:
        for data_parallel in (DataParallel.ALL_REDUCE, DataParallel.DDP, DataParallel.ZERO1, DataParallel.ZERO2):
            found.append(experiment(plan(schedule, data_parallel=data_parallel), GPT, 4))
        found.append(experiment(plan(schedule, rank_order=RankOrder.PIPELINE_FIRST), GPT, 4))
    for family in (Family.BERT, Family.T5):
        for data_parallel in (DataParallel.DDP, DataParallel.ZERO1):
            found.append(experiment(plan(INTERLEAVED, data_parallel=data_parallel), WORKLOADS[family], 4))
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_schedule_trains_as_one_process_does_with_exact_bytes(ranks: int, tmp_path: Path) -> None:
    runs = cases(ranks)
    longer = next((e for e in runs if e.workload.layers == 8), None)
    if longer:
        alone = experiment(Plan(name="alone"), longer.workload, 1)
        (tmp_path / "alone").mkdir()
        (of_longer,) = train_all([alone], tmp_path / "alone")
    for run, trained in zip(runs, train_all(runs, tmp_path), strict=True):
        assert_same(trained, of_longer if run is longer else reference(run.workload.family))
        if run.workload.family is not Family.T5:
            assert_bytes(run, trained)


def assert_bytes(run: Experiment, trained: Trained) -> None:
    """Boundaries between stages, the embedding's gradient on the first and last rank, and nothing else between the
    ranks of a pipeline."""
    plan, workload = run.plan, run.workload
    boundaries = plan.pipeline_parallel * plan.virtual_stages - 1
    state = run.micro_batch * workload.sequence_length * workload.hidden * 4
    messages = 2 * boundaries * run.accumulation * run.data_parallel_degree
    embedding = workload.vocab_size * workload.hidden * 4
    shards = run.data_parallel_degree if plan.data_parallel in (DataParallel.ZERO1, DataParallel.ZERO2) else 1
    for iteration in range(run.iterations):
        calls = [c for of_rank in trained.calls for c in of_rank[iteration] if c[1] != "data_parallel"]
        calls = [c for c in calls if c[1] != "sharding"]
        assert Counter(calls) == {
            ("send", "pipeline_parallel", 2, state): messages,
            ("recv", "pipeline_parallel", 2, state): messages,
            ("all_reduce", "embedding", 2, embedding // shards): 2 * run.data_parallel_degree,
        }
