"""What collectives an iteration takes, in theory: recorded runs and the cost model are both held to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import ceil, prod

from wirecost.spec import DataParallel, Experiment, Family, GradientTraffic, Plan, Workload

Shape = tuple[int, ...]
Call = tuple[str, str, int, int]
"""Operation, group, ranks, bytes."""
ELEMENT = 4
ALL_REDUCED = (DataParallel.ALL_REDUCE, DataParallel.DDP)


def data_parallel(case: Experiment, shapes: Mapping[str, Shape], *, gathers: bool) -> Iterator[Call]:
    plan = case.plan
    held = plan.precision.bytes_per_element
    sent = 2 if plan.gradient_traffic in (GradientTraffic.FP16, GradientTraffic.BF16) else held
    if plan.data_parallel in ALL_REDUCED:
        limit = plan.bucket_bytes // held if plan.data_parallel is DataParallel.DDP else None
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
        dealt = buckets(shapes.values(), None if whole else plan.bucket_bytes // held)
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
    """Returns the elements of a bucket in which each parameter starts at a multiple of `alignment`."""
    return sum(up(prod(shape), alignment) for shape in bucket[:-1]) + prod(bucket[-1])


def up(value: int, multiple: int) -> int:
    return ceil(value / multiple) * multiple


def fsdp_blocks(shapes: Mapping[str, Shape], sharding: int) -> list[int]:
    """Returns the elements of each block that is gathered together: first the root's, then each layer's.

    The root holds the parts that units share (the embedding, T5's tables of positions) and the units at the ends
    and between T5's stacks. Every parameter's rows are padded to a multiple of the ranks.
    """
    sizes: dict[str, int] = {"root": 0}
    for name, shape in shapes.items():
        unit = name.split(".")[1]
        layer = any(n.startswith(f"units.{unit}.") and "mlp" in n for n in shapes) and "relative" not in name
        block = unit if layer else "root"
        sizes[block] = sizes.get(block, 0) + up(shape[0], sharding) * prod(shape[1:])
    return list(sizes.values())


def tensor_parallel(
    workload: Workload, plan: Plan, *, micro_batch: int, micro_batches: int, element: int = ELEMENT
) -> Counter[tuple[str, str, int, int]]:
    """Collectives of one rank and iteration; (op, group, n, bytes). Elements below, of `element` bytes, are those of
    one sequence. Without the sum of partial gradients."""
    made: Counter[tuple[str, str, int, int]] = Counter()
    tensor_ranks, context_ranks = plan.tensor_parallel, plan.context_parallel
    length = workload.sequence_length // context_ranks

    def add(op: str, count: int, elements: int, group: str = "tensor_parallel", of: int = element) -> None:
        size = tensor_ranks if group == "tensor_parallel" else context_ranks
        made[op, group, size, of * micro_batch * elements] += count

    if context_ranks > 1:
        keys_and_values = (
            2 * workload.sequence_length * workload.key_value_heads * workload.head_size // tensor_ranks
        )
        for op in ("all_gather", "reduce_scatter"):
            add(op, micro_batches * workload.layers, keys_and_values, "context_parallel")
    if tensor_ranks == 1:
        return made

    wide = length * workload.hidden

    def layers(count: int, columns: int, rows: int, elements: int, *, again: int) -> None:
        """Adds `count` layers. `again` of their column-parallel inputs are gathered again in backward."""
        if plan.sequence_parallel:
            add("all_gather", micro_batches * count * (columns + again + rows), elements)
            add("reduce_scatter", micro_batches * count * (rows + columns), elements)
        else:
            add("all_reduce", micro_batches * count * (columns + rows), elements)

    layers(workload.layers, 2, 2, wide, again=2)
    layers(1, 0, 1, wide, again=0)  # the embedding
    head = length
    if workload.family is Family.T5:
        assert workload.decoder_layers is not None
        head = workload.decoder_sequence
        narrow = head * workload.hidden
        layers(workload.decoder_layers, 3, 3, narrow, again=3)
        layers(workload.decoder_layers, 1, 0, wide, again=1)  # cross attention's keys and values
        layers(1, 1, 1, narrow, again=1)  # the decoder's embedding, the logits
    elif workload.family is Family.BERT:
        head = masked_tokens(workload)
        if plan.sequence_parallel:
            add("all_gather", micro_batches, wide)
        add("all_reduce", micro_batches, head * workload.hidden)
    else:
        layers(1, 1, 0, wide, again=1)  # the logits
    add("all_reduce", micro_batches, head, of=ELEMENT)  # the largest logit
    add("all_reduce", micro_batches, 2 * head, of=ELEMENT)
    return +made


def masked_tokens(workload: Workload) -> int:
    import numpy as np

    from wirecost.train.models import examples_for

    examples = examples_for(workload)
    rows = np.zeros((1, examples.length), dtype=np.int64)
    return examples.batch(rows, [np.random.default_rng(0)])["masked"].shape[1]


def partial_gradients(workload: Workload) -> int:
    """Elements of parameters that see a slice of the sequence: norms, positions, biases after a sum."""
    hidden, layers = workload.hidden, workload.layers
    positions = workload.sequence_length * hidden
    if workload.family is Family.T5:
        assert workload.decoder_layers is not None
        return hidden * (2 * layers + 1 + 3 * workload.decoder_layers + 1)
    if workload.family is Family.BERT:
        return 2 * hidden + positions + 2 * hidden + layers * (2 * 2 + 2) * hidden
    if workload.positions == "rotary":
        return hidden * (2 * layers + 1)
    return positions + layers * (2 * 2 + 2) * hidden + 2 * hidden
