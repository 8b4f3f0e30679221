"""ZeRO, hybrid sharding and compressed gradients: the same parameters as one process, and the bytes of theory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.model_messages import assert_messages_of_the_model
from support.parity import WORKLOADS, Trained, assert_same, experiment, reference, train_all
from support.traffic import data_parallel as theory
from wirecost.spec import DataParallel, Experiment, Family, GradientTraffic, Plan, Precision
from wirecost.spec.experiment import Optimizer

GPT = WORKLOADS[Family.GPT]
BUCKET_BYTES = 40_000
ZERO = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)
LEARNING: dict[str, Any] = {"iterations": 8, "optimizer": Optimizer(learning_rate=1e-2)}


def plan(data_parallel: DataParallel, **settings: Any) -> Plan:
    words = [data_parallel.replace("_", "-"), *(str(v) for v in settings.values())]
    return Plan(name="-".join(words), data_parallel=data_parallel, bucket_bytes=BUCKET_BYTES, **settings)


def exact(ranks: int) -> Iterator[Experiment]:
    """Runs that come to what one process comes to."""
    for data_parallel in (*ZERO, DataParallel.DDP):
        for overlap in (True, False):
            yield experiment(plan(data_parallel, overlap=overlap), GPT, ranks)
    for data_parallel in ZERO:
        yield experiment(plan(data_parallel), GPT, ranks, micro_batch=8 // ranks)
        for family in WORKLOADS.keys() - {Family.GPT}:
            yield experiment(plan(data_parallel), WORKLOADS[family], ranks)
    if ranks == 4:
        for data_parallel in ZERO:
            for overlap in (True, False):
                hybrid = plan(data_parallel, overlap=overlap, sharding_group="node")
                yield experiment(hybrid, GPT, 4, hosts=2, ranks_per_host=2)
        # Hosts of one rank: sharded over nothing, replicated over all.
        for data_parallel in (DataParallel.ZERO1, DataParallel.ZERO3):
            alone = plan(data_parallel, sharding_group="node")
            yield experiment(alone, GPT, 4, hosts=4, ranks_per_host=1)


def rounded(ranks: int) -> Iterator[Experiment]:
    """Runs that come close: 16 bits, or compressed gradients. They learn, with the first for comparison."""
    yield experiment(plan(DataParallel.ALL_REDUCE), GPT, ranks, **LEARNING)
    for traffic in (GradientTraffic.INT8, GradientTraffic.POWERSGD):
        yield experiment(plan(DataParallel.DDP, gradient_traffic=traffic), GPT, ranks, **LEARNING)
    if ranks == 2:
        for data_parallel in ZERO:
            yield experiment(plan(data_parallel, precision=Precision.BF16), GPT, 2, **LEARNING)
        for data_parallel in (*ZERO, DataParallel.DDP):
            for traffic in (GradientTraffic.FP16, GradientTraffic.BF16):
                yield experiment(plan(data_parallel, gradient_traffic=traffic), GPT, 2, **LEARNING)
        for traffic in (GradientTraffic.FP16, GradientTraffic.INT8, GradientTraffic.POWERSGD):
            yield experiment(plan(DataParallel.ALL_REDUCE, gradient_traffic=traffic), GPT, 2, **LEARNING)
        int8 = plan(DataParallel.DDP, gradient_traffic=GradientTraffic.INT8, precision=Precision.BF16)
        yield experiment(int8, GPT, 2, **LEARNING)
    else:
        for data_parallel in ZERO:
            hybrid = plan(data_parallel, gradient_traffic=GradientTraffic.BF16, sharding_group="node")
            yield experiment(hybrid, GPT, 4, hosts=2, ranks_per_host=2, **LEARNING)


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_strategy_trains_as_one_process_does_with_exact_bytes(ranks: int, tmp_path: Path) -> None:
    same, close = list(exact(ranks)), list(rounded(ranks))
    trained = train_all(same + close, tmp_path)
    for case, result in zip(same, trained, strict=False):
        assert_same(result, reference(case.workload.family))
        assert_bytes(case, result)
    native, *others = trained[len(same) :]
    assert native.losses[-1] < native.losses[0] - 0.3
    for case, result in zip(close[1:], others, strict=True):
        off = [abs(loss / right - 1) for loss, right in zip(result.losses, native.losses, strict=True)]
        # Adam takes other steps along a low-rank gradient, here better ones.
        low_rank = case.plan.gradient_traffic is GradientTraffic.POWERSGD
        assert max(off) < (0.05 if low_rank else 0.01), f"{case.plan.name}: {result.losses} is not {native.losses}"
        assert result.losses[-1] < result.losses[0] - 0.3
        assert_bytes(case, result)


def assert_bytes(case: Experiment, trained: Trained) -> None:
    """Every collective of every iteration of every rank is what theory says, and nothing else is sent."""
    whole = reference(case.workload.family).parameters
    shapes = {name: tuple(p.shape) for name, p in whole.items()}
    plan = case.plan
    if plan.data_parallel is DataParallel.DDP and plan.overlap and plan.gradient_traffic is GradientTraffic.NATIVE:
        return  # PyTorch's own buckets
    for of_rank in trained.calls:
        for iteration, calls in enumerate(of_rank):
            # With overlap the parameters that a step made are gathered at the start of the next iteration.
            gathers = not plan.overlap or iteration > 0
            assert Counter(calls) == Counter(theory(case, shapes, gathers=gathers)), plan.name
            if plan.data_parallel is DataParallel.ZERO3 and plan.sharding_group == "all":
                assert_messages_of_the_model(case, calls)
