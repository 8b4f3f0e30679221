"""Pipelines against one process: the same parameters, and exactly the messages of theory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.parity import WORKLOADS, Trained, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Experiment, Family, PipelineSchedule, Plan, RankOrder, Recompute
from wirecost.spec.experiment import Optimizer

GPT = WORKLOADS[Family.GPT]
GPIPE, ONE_F_ONE_B = PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B
INTERLEAVED = PipelineSchedule.INTERLEAVED


def plan(schedule: PipelineSchedule, **settings: Any) -> Plan:
    settings = {"pipeline_parallel": 2, "virtual_stages": 2 if schedule is INTERLEAVED else 1} | settings
    return Plan(name="plan", pipeline_schedule=schedule, bucket_bytes=40_000, **settings)


LONGER = GPT.model_copy(update={"name": "longer", "layers": 8})
CLIPPED = Optimizer(epsilon=1e-3, gradient_clipping=0.5)


def cases(ranks: int) -> Iterator[Experiment]:
    if ranks == 2:
        for family in WORKLOADS:
            for schedule in (ONE_F_ONE_B, INTERLEAVED):
                yield experiment(plan(schedule), WORKLOADS[family], 2)
        yield experiment(plan(GPIPE), GPT, 2)
        return
    yield experiment(plan(ONE_F_ONE_B, pipeline_parallel=4), WORKLOADS[Family.BERT], 4)
    yield experiment(plan(GPIPE, pipeline_parallel=4), GPT, 4)
    yield experiment(plan(ONE_F_ONE_B, pipeline_parallel=4), GPT, 4)
    yield experiment(plan(INTERLEAVED, pipeline_parallel=4), LONGER, 4)
    # The decoder's table of distances is on the last two stages only.
    yield experiment(plan(ONE_F_ONE_B, pipeline_parallel=4), WORKLOADS[Family.T5], 4, optimizer=CLIPPED)
    for schedule in (ONE_F_ONE_B, INTERLEAVED):
        for data_parallel in (DataParallel.ALL_REDUCE, DataParallel.DDP, DataParallel.ZERO1, DataParallel.ZERO2):
            yield experiment(plan(schedule, data_parallel=data_parallel), GPT, 4)
    yield experiment(plan(GPIPE, data_parallel=DataParallel.ZERO1), GPT, 4)
    yield experiment(plan(ONE_F_ONE_B, rank_order=RankOrder.PIPELINE_FIRST), GPT, 4)
    yield experiment(plan(ONE_F_ONE_B, rank_order=RankOrder.DATA_LAST), GPT, 4)
    yield experiment(plan(INTERLEAVED, data_parallel=DataParallel.DDP), WORKLOADS[Family.T5], 4)
    yield experiment(plan(ONE_F_ONE_B, recompute=Recompute.FULL), GPT, 4)
    yield experiment(plan(ONE_F_ONE_B, tensor_parallel=2), WORKLOADS[Family.BERT], 4)
    yield experiment(plan(INTERLEAVED, tensor_parallel=2, sequence_parallel=True), GPT, 4)
    yield experiment(plan(GPIPE, context_parallel=2, data_parallel=DataParallel.ZERO1), GPT, 4)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Trained]:
    """What one process makes of what `reference` does not train."""
    one = Plan(name="alone")
    t5 = experiment(one, WORKLOADS[Family.T5], 1, optimizer=CLIPPED)
    trained = train_all([experiment(one, LONGER, 1), t5], tmp_path_factory.mktemp("alone"))
    return dict(zip([("longer", False), ("t5", True)], trained, strict=True))


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_schedule_trains_as_one_process_does_with_exact_messages(
    ranks: int, alone: dict[tuple[str, bool], Trained], tmp_path: Path
) -> None:
    runs = list(cases(ranks))
    assert runs
    for run, trained in zip(runs, train_all(runs, tmp_path), strict=True):
        key = run.workload.name, run.optimizer.gradient_clipping is not None
        assert_same(trained, alone.get(key) or reference(run.workload.family))
        if run.workload.family is not Family.T5 and run.plan.model_parallel == run.plan.pipeline_parallel:
            assert_messages(run, trained)


def assert_messages(run: Experiment, trained: Trained) -> None:
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
