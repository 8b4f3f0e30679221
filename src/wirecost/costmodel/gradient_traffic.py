"""Gradients on the wire: bytes of one gradient in a format, and the memory traffic of getting there and back.

`tests/unit/costmodel/test_traffic_bytes.py` checks that the bytes are those of `wirecost.train.parallel.traffic`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from wirecost.spec import Family, GradientTraffic, Workload
from wirecost.spec.parameters import T5_BUCKETS, count

BLOCK = 256
"""Gradients that share a scale of 4 bytes in 8-bit traffic."""


@dataclass(frozen=True)
class Wire:
    """One gradient on the wire. `bytes` are its own (0: as the stack has them), `memory_bytes` those read and
    written to compress and restore it. Gradients are summed by an all-to-all and an all-gather (`exchanged`), by
    two all-reduces (`factored`), or by one all-reduce."""

    bytes: float = 0.0
    exchanged: bool = False
    factored: bool = False
    memory_bytes: float = 0.0


def wire(traffic: GradientTraffic, workload: Workload, powersgd_rank: int, ranks: int, shards: int) -> Wire:
    """Returns how a workload's gradients travel between `ranks` ranks that each hold one of `shards` equal parts
    of the parameters.

    `memory_bytes` counts the passes of the engine's own code over FP32 gradients: a cast and its way back 12;
    8 bits 51 to encode, 14 to decode twice and 12 for padding and the copy back, and once more an n-th to sum and
    encode; PowerSGD 64: the error added, matrices gathered, four thin products, the error kept, everything written
    back.
    """
    if traffic is GradientTraffic.INT8:
        gradients = count(workload).total / shards
        blocks = ranks * ceil(gradients / (ranks * BLOCK))
        return Wire(blocks * (BLOCK + 4) / gradients, exchanged=True, memory_bytes=77 + 55 / ranks)
    if traffic is GradientTraffic.POWERSGD:
        return Wire(powersgd_bytes(workload, powersgd_rank), factored=True, memory_bytes=64)
    if traffic is GradientTraffic.NATIVE:
        return Wire()
    return Wire(2.0, memory_bytes=12)


def powersgd_bytes(workload: Workload, rank: int) -> float:
    """Mean FP32 bytes sent for a parameter: `rank` columns of two factors for a matrix that they make smaller
    (arXiv:1905.13727, section 3), everything else whole."""
    total = count(workload).total
    saved = sum(
        times * (rows * columns - (rows + columns) * rank)
        for rows, columns, times in matrices(workload)
        if (rows + columns) * rank < rows * columns
    )
    return 4.0 * (total - saved) / total


def matrices(workload: Workload) -> Iterator[tuple[int, int, int]]:
    """(rows, columns, how many) of every matrix among a workload's parameters."""
    h, ffn, layers = workload.hidden, workload.ffn, workload.layers
    queries, values = workload.heads * workload.head_size, workload.key_value_heads * workload.head_size
    decoders = workload.decoder_layers or 0
    moe = workload.mixture_of_experts
    wide = (moe.expert_ffn_hidden if moe else None) or ffn
    dense = workload.dense_mlp_layers
    sparse = layers + decoders - dense
    mlps = sparse * (moe.experts + moe.shared_experts if moe else 1)
    yield queries + 2 * values, h, layers + decoders
    yield h, queries, layers + 2 * decoders
    yield queries, h, decoders  # cross attention's queries, and its keys and values
    yield 2 * values, h, decoders
    yield wide, h, mlps * (2 if workload.gated else 1)
    yield h, wide, mlps
    if moe:
        yield moe.experts, h, sparse
        yield ffn, h, dense * (2 if workload.gated else 1)
        yield h, ffn, dense
    yield workload.vocab_size, h, 1 if workload.tied_embeddings else 2
    if workload.positions == "learned":
        yield max(workload.sequence_length, workload.decoder_sequence_length or 0), h, 1
    if workload.family is Family.BERT:
        yield h, h, 2  # the pooler's and the head's transform
        yield 2, h, 2  # token types, sentence order
    if workload.family is Family.T5 and workload.positions == "relative":
        yield T5_BUCKETS, workload.heads, 2
