"""ZeRO, hybrid sharding and compressed gradients: the same parameters as one process, and the bytes of theory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.parity import WORKLOADS, Trained, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Experiment, Family, GradientTraffic, Plan, Precision
from wirecost.spec.experiment import Optimizer

GPT = WORKLOADS[Family.GPT]
BUCKET_BYTES = 40_000
ZERO = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)
ALL_REDUCED = (DataParallel.ALL_REDUCE, DataParallel.DDP)
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


Shape = tuple[int, ...]
Call = tuple[str, str, int, int]
"""Operation, group, ranks, bytes."""


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


def theory(case: Experiment, shapes: Mapping[str, Shape], *, gathers: bool) -> Iterator[Call]:
    plan = case.plan
    held = plan.precision.bytes_per_element
    sent = 2 if plan.gradient_traffic in (GradientTraffic.FP16, GradientTraffic.BF16) else held
    if plan.data_parallel in ALL_REDUCED:
        limit = BUCKET_BYTES // held if plan.data_parallel is DataParallel.DDP else None
        for bucket in buckets(shapes.values(), limit):
            yield from all_reduced(plan, bucket, case.ranks, sent)
        return
    sharding = case.ranks_per_host if plan.sharding_group == "node" else case.ranks
    replicas = case.ranks // sharding
    scatters = case.accumulation
    if plan.data_parallel is DataParallel.ZERO3 and sharding > 1:
        sizes = fsdp_blocks(shapes, sharding)
        for block, size in enumerate(sizes):
            in_each = 1 if block == 0 else 2  # the root's parameters stay from forward to backward
            yield from scatters * in_each * [("all_gather", "sharding", sharding, held * size)]
    else:
        whole = plan.data_parallel is DataParallel.ZERO1 and not plan.overlap
        dealt = buckets(shapes.values(), None if whole else BUCKET_BYTES // held)
        sizes = [up(elements(bucket, 64), 64 * sharding) for bucket in dealt]
        if plan.data_parallel is DataParallel.ZERO1:
            scatters = 1
        if gathers and sharding > 1:
            yield from [("all_gather", "sharding", sharding, held * size) for size in sizes]
    for size in sizes:
        if sharding > 1:
            yield from scatters * [("reduce_scatter", "sharding", sharding, sent * size)]
        if replicas > 1:
            yield ("all_reduce", "replication", replicas, sent * size // sharding)


def all_reduced(plan: Plan, bucket: list[Shape], ranks: int, sent: int) -> Iterator[Call]:
    group = ("data_parallel", ranks)
    size = elements(bucket)
    if plan.gradient_traffic is GradientTraffic.INT8:
        blocks = ranks * ceil(size / (ranks * 256))
        yield ("all_to_all", *group, blocks * 260)
        yield ("all_gather", *group, blocks * 260)
    elif plan.gradient_traffic is GradientTraffic.POWERSGD:
        rank = plan.powersgd_rank
        matrices = [(s[0], prod(s[1:])) for s in bucket]
        low = [(r, c) for r, c in matrices if (r + c) * rank < r * c]
        yield ("all_reduce", *group, 4 * (size - sum(r * c for r, c in low) + sum(r for r, _ in low) * rank))
        if low:
            yield ("all_reduce", *group, 4 * sum(c for _, c in low) * rank)
    else:
        yield ("all_reduce", *group, sent * size)


def buckets(shapes: Iterable[Shape], limit: int | None) -> list[list[Shape]]:
    """Backwards, each closed once it holds `limit` elements."""
    found: list[list[Shape]] = [[]]
    for shape in reversed(list(shapes)):
        if limit is not None and sum(map(prod, found[-1])) >= limit:
            found.append([])
        found[-1].append(shape)
    return found


def elements(bucket: list[Shape], alignment: int = 1) -> int:
    """Each parameter starts at a multiple of `alignment`."""
    return sum(up(prod(shape), alignment) for shape in bucket[:-1]) + prod(bucket[-1])


def up(value: int, multiple: int) -> int:
    return ceil(value / multiple) * multiple


def fsdp_blocks(shapes: Mapping[str, Shape], sharding: int) -> list[int]:
    """The elements of what is gathered together: first the root's, which is what units share (the embedding, T5's
    tables of positions) and the units at the ends and between T5's stacks; then each layer's. Every parameter's
    rows are padded to a multiple of the ranks."""
    sizes: dict[str, int] = {"root": 0}
    for name, shape in shapes.items():
        unit = name.split(".")[1]
        layer = any(n.startswith(f"units.{unit}.") and "mlp" in n for n in shapes) and "relative" not in name
        block = unit if layer else "root"
        sizes[block] = sizes.get(block, 0) + up(shape[0], sharding) * prod(shape[1:])
    return list(sizes.values())
