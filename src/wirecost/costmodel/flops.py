"""Floating-point operations and memory traffic of one layer and of the vocabulary layer, for each rank.

A product of (m, k) and (k, n) takes 2mnk operations (forward) and twice that in backward (Narayanan et al. 2021,
arXiv:2104.04473, appendix: 72 B s l h^2 (1 + s/6h + V/12lh) for forward and backward of a GPT).
"""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.costmodel.inputs import Layout, Shape
from wirecost.costmodel.numbers import Number, flag


@dataclass(slots=True)
class LayerWork:
    """Forward work of one layer on one micro-batch on one rank."""

    matrix_flops: Number
    matrix_elements: Number  # operands and results of the products
    attention_flops: Number  # scores and weighted values, the full square
    scores: Number  # elements of the score matrices on this rank
    hidden_elements: Number  # tokens x hidden that element-wise kernels pass over
    sharded_elements: Number  # tokens x MLP width / 4, split by tensor parallelism


def layer_work(shape: Shape, layout: Layout, *, sequence: Number, keys: Number | None = None) -> LayerWork:
    """Returns the work of a layer with self attention over `sequence`, and where `keys` is given also cross
    attention to that many positions."""
    tp = layout.tensor
    h, q, kv = shape.hidden, shape.query, shape.key_value
    tokens = layout.micro_batch * sequence / layout.context
    wide = (q + 2 * kv) / tp
    narrow = q / tp
    up = (shape.mlp_matrices - 1) * shape.ffn / tp
    down = shape.ffn / tp
    # Each token visits top_k experts; every expert's weights are read whole.
    visits = tokens * shape.top_k
    local_experts = shape.experts / layout.expert
    flops = 2 * h * (tokens * (wide + narrow) + visits * (up + down))
    elements = (
        2 * tokens * h
        + tokens * (wide + narrow)
        + h * (wide + narrow)
        + visits * (2 * h + up + down)
        + local_experts * h * (up + down)
    )
    attention = 4 * tokens * sequence * narrow
    scores = layout.micro_batch * shape.heads / tp * sequence * sequence / layout.context
    if keys is not None:
        other = layout.micro_batch * keys / layout.context
        flops = flops + 2 * h * (tokens * 2 * narrow + other * 2 * kv / tp)
        elements = (
            elements + 2 * tokens * h + tokens * 2 * narrow + other * (h + 2 * kv / tp) + h * (wide + narrow)
        )
        attention = attention + 4 * tokens * keys * narrow
        scores = scores + layout.micro_batch * shape.heads / tp * sequence * keys / layout.context
    # Sequence parallelism splits what lies between the tensor-parallel regions (arXiv:2205.05198, section 4.2.2).
    split = 1 + layout.sequence_parallel * (tp - 1)
    return LayerWork(
        matrix_flops=flops,
        matrix_elements=elements,
        attention_flops=attention,
        scores=scores,
        hidden_elements=tokens * h / split * (1.0 if keys is None else 1.5),
        sharded_elements=visits * (shape.mlp_matrices - 1) * shape.ffn / (4 * tp),
    )


def model_flops(shape: Shape, *, batch: Number) -> Number:
    """Returns the operations of one iteration without recomputation: what MFU counts (arXiv:2204.02311, appendix
    B)."""
    tokens = batch * shape.sequence
    h = shape.hidden
    layer = 2 * h * (2 * shape.query + 2 * shape.key_value + shape.top_k * shape.mlp_matrices * shape.ffn)
    layer = layer + 4 * shape.sequence * shape.query
    total = shape.layers * tokens * layer
    out = batch * shape.decoder_sequence
    decoder = 2 * h * (4 * shape.query + 2 * shape.key_value + shape.mlp_matrices * shape.ffn)
    decoder = decoder + 4 * (shape.decoder_sequence + shape.sequence) * shape.query
    total = total + shape.decoder_layers * (out * decoder + 4 * tokens * h * shape.key_value)
    return 3 * (total + 2 * tokens_of_head(shape, batch) * h * shape.vocab)


def tokens_of_head(shape: Shape, batch: Number) -> Number:
    """Returns the tokens that reach the vocabulary layer: the decoder's where there is one."""
    encoder_only = flag(shape.decoder_layers == 0)
    return batch * (encoder_only * shape.sequence + (1 - encoder_only) * shape.decoder_sequence)
