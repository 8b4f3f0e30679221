"""What tensor, sequence and context parallelism have to move, by docs/engine.md."""

from __future__ import annotations

from collections import Counter

import numpy as np

from support.parity import MICRO_BATCH
from wirecost.spec import Family, Plan, Workload
from wirecost.train.models import examples_for


def moved(
    workload: Workload, plan: Plan, *, micro_batches: int, element: int = 4
) -> Counter[tuple[str, str, int, int]]:
    """Collectives of tensor and context parallelism of one rank and iteration; (op, group, n, bytes). Elements
    below, of `element` bytes, are those of one sequence. Without the sum of partial gradients."""
    made: Counter[tuple[str, str, int, int]] = Counter()
    tensor_ranks, context_ranks = plan.tensor_parallel, plan.context_parallel
    length = workload.sequence_length // context_ranks

    def add(op: str, count: int, elements: int, group: str = "tensor_parallel", of: int = element) -> None:
        size = tensor_ranks if group == "tensor_parallel" else context_ranks
        made[op, group, size, of * MICRO_BATCH * elements] += count

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
        """Of each: column-parallel inputs, of which `again` are gathered again in backward; row-parallel outputs."""
        if plan.sequence_parallel:
            add("all_gather", micro_batches * count * (columns + again + rows), elements)
            add("reduce_scatter", micro_batches * count * (rows + columns), elements)
        else:
            add("all_reduce", micro_batches * count * (columns + rows), elements)

    gated = workload.activation == "swiglu"
    layers(workload.layers, 2, 2, wide, again=1 if gated else 2)
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
    add("all_reduce", micro_batches, head, of=4)  # the largest logit
    add("all_reduce", micro_batches, 2 * head, of=4)
    return +made


def masked_tokens(workload: Workload) -> int:
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
