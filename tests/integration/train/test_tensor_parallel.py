"""Tensor, sequence and context parallelism against one process: the same parameters, exactly the bytes of theory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.parity import LLAMA, MICRO_BATCH, WORKLOADS, Trained, assert_same, experiment, reference, train_all
from support.traffic import ELEMENT, partial_gradients, tensor_parallel
from wirecost.spec import DataParallel, Family, Plan, RankOrder

GPT = WORKLOADS[Family.GPT]
ODD = GPT.model_copy(update={"name": "odd-vocabulary", "vocab_size": 133, "layers": 2})
"""Over four ranks the last has one token beside its padding."""
TINY = GPT.model_copy(update={"name": "tiny-vocabulary", "vocab_size": 129, "layers": 1})
OTHERS = (ODD, TINY, LLAMA)
ZERO = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """What one process makes of the workloads that are no family's."""
    cases = [experiment(Plan(name="alone"), workload, 1) for workload in OTHERS]
    trained = train_all(cases, tmp_path_factory.mktemp("alone"))
    return {workload.name: one for workload, one in zip(OTHERS, trained, strict=True)}


def tensor(ranks: int, *, sequence: bool = False, **more: object) -> Plan:
    return Plan.model_validate(
        {"name": f"tp{ranks}", "tensor_parallel": ranks, "sequence_parallel": sequence, **more}
    )


def context(ranks: int, **more: object) -> Plan:
    return Plan.model_validate({"name": f"cp{ranks}", "context_parallel": ranks, **more})


TWO = [
    *((WORKLOADS[f], tensor(2)) for f in (Family.BERT, Family.T5)),
    *((WORKLOADS[f], tensor(2, sequence=True)) for f in Family),
    (GPT, tensor(2, overlap=False)),
    (GPT, tensor(2, sequence=True, overlap=False)),
    (LLAMA, tensor(2)),
    (ODD, tensor(2)),
    (LLAMA, context(2)),
]
FOUR = [
    *((WORKLOADS[f], tensor(4)) for f in Family),
    (TINY, tensor(4)),
    # A micro-batch that doesn't divide over the ranks: slices have a part of each sequence.
    (LLAMA, tensor(4, sequence=True)),
    *((WORKLOADS[f], tensor(4, sequence=True)) for f in Family),
    (GPT, context(4)),
    (GPT, tensor(2, rank_order=RankOrder.PIPELINE_FIRST)),
    (GPT, tensor(2, data_parallel=DataParallel.DDP)),
    (GPT, tensor(2, data_parallel=DataParallel.ZERO1)),
    *((GPT, tensor(2, sequence=True, data_parallel=d, bucket_bytes=20_000)) for d in (DataParallel.DDP, *ZERO)),
    (WORKLOADS[Family.BERT], tensor(2, sequence=True, rank_order=RankOrder.PIPELINE_FIRST)),
    (GPT, context(2, data_parallel=DataParallel.DDP, rank_order=RankOrder.PIPELINE_FIRST)),
    (GPT, context(2, data_parallel=DataParallel.ZERO3)),
    (GPT, tensor(2, context_parallel=2, rank_order=RankOrder.PIPELINE_FIRST)),
    (LLAMA, tensor(2, sequence=True, context_parallel=2)),
]


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_is_split_trains_as_one_process_does(ranks: int, tmp_path: Path, others: dict[str, Trained]) -> None:
    cases = {2: TWO, 4: FOUR}[ranks]
    experiments = [experiment(plan, workload, ranks) for workload, plan in cases]
    assert experiments
    for (workload, plan), trained in zip(cases, train_all(experiments, tmp_path), strict=True):
        try:
            assert_same(trained, others.get(workload.name) or reference(workload.family))
        except AssertionError as wrong:
            raise AssertionError(f"{workload.name} with {plan}") from wrong
        data = ranks // plan.tensor_parallel
        expected = tensor_parallel(
            workload, plan, micro_batch=MICRO_BATCH, micro_batches=8 * plan.context_parallel // data // MICRO_BATCH
        )
        for iteration in zip(*trained.calls, strict=True):
            partial = 0
            for calls in iteration:
                split = Counter(c for c in calls if c[1] in ("tensor_parallel", "context_parallel"))
                last = [c for c in calls if c[:2] == ("all_reduce", "tensor_parallel")][-1:]
                if plan.sequence_parallel and last[0][3] != 2 * ELEMENT * MICRO_BATCH * workload.sequence_length:
                    split -= Counter(last)
                    partial += last[0][3]
                assert split == expected, f"{workload.name} with {plan}"
            if plan.sequence_parallel:
                # ZeRO's ranks have shards of these gradients, the others all of them.
                copies = plan.tensor_parallel if plan.data_parallel in ZERO else ranks
                assert partial == copies * ELEMENT * partial_gradients(workload), f"{workload.name} with {plan}"
