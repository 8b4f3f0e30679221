"""Floating-point operations and memory traffic of one layer and of the vocabulary layer, for each rank.

A product of (m, k) and (k, n) takes 2mnk operations (forward) and twice that in backward (Narayanan et al. 2021,
arXiv:2104.04473, appendix: 72 B s l h^2 (1 + s/6h + V/12lh) for forward and backward of a GPT).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.inputs import Layout, Shape
from wirecost.costmodel.numbers import Number, blend, flag, has, where


@dataclass(slots=True)
class LayerWork:
    """Forward work of one layer on one micro-batch on one rank."""

    matrix_flops: Number
    matrix_elements: Number  # operands and results of the products
    attention_flops: Number  # scores and weighted values, the full square
    scores: Number  # elements of the score matrices on this rank
    keys: Number  # positions that each query attends to, the skipped ones included
    hidden_elements: Number  # tokens x hidden that element-wise kernels pass over
    sharded_elements: Number  # tokens x MLP width / 4, split by tensor parallelism
    dispatched_elements: Number = 0.0  # copies of tokens for experts x hidden


def layer_work(shape: Shape, layout: Layout, *, sequence: Number, keys: Number | None = None) -> LayerWork:
    """Returns the work of a layer with self attention over `sequence`, and where `keys` is given also cross
    attention to that many positions."""
    tp = layout.tensor
    h, q, kv = shape.hidden, shape.query, shape.key_value
    tokens = layout.micro_batch * sequence / layout.context
    wide = (q + 2 * kv) / tp
    narrow = q / tp
    flops = 2 * h * tokens * (wide + narrow)
    elements = 2 * tokens * h + tokens * (wide + narrow) + h * (wide + narrow)
    if has(shape.latent_split > 0):
        is_latent = shape.latent_split > 0
        # Sequence parallelism splits the tokens of the products that tensor parallelism doesn't split.
        whole_tokens = tokens / (1 + layout.sequence_parallel * (tp - 1))
        products = tokens * shape.latent_split / tp + whole_tokens * shape.latent_whole
        operands = tokens * (2 * h + wide + narrow) + whole_tokens * shape.latent_width
        operands = operands + shape.latent_split / tp + shape.latent_whole
        flops = where(is_latent, 2 * products, flops)
        elements = where(is_latent, operands, elements)
    mlp = mlp_work(tokens, shape, layout)
    flops, elements = flops + mlp.flops, elements + mlp.elements
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
        keys=sequence,
        hidden_elements=tokens * h / split * (1.0 if keys is None else 1.5),
        sharded_elements=mlp.wide_elements / 4,
        dispatched_elements=mlp.dispatched_elements,
    )


@dataclass(slots=True)
class MlpWork:
    """Forward work of the MLP, or of the experts, of a layer in the mean over all layers."""

    flops: Number
    elements: Number
    wide_elements: Number  # between the products
    dispatched_elements: Number  # copies of tokens x hidden


def mlp_work(tokens: Number, shape: Shape, layout: Layout) -> MlpWork:
    """Returns the work of the layers' MLPs on one micro-batch on one rank, in the mean over layers with and
    without experts. Each token is copied to `top_k` experts and passes the shared ones; the weights of all experts
    of a rank are read."""
    tp, h = layout.tensor, shape.hidden
    matrices = shape.mlp_matrices
    if not has(shape.moe_share > 0):
        width = shape.ffn / tp
        return MlpWork(
            flops=2 * h * tokens * matrices * width,
            elements=tokens * (2 * h + matrices * width) + h * matrices * width,
            wide_elements=tokens * (matrices - 1) * width,
            dispatched_elements=tokens * 0.0,
        )
    share = shape.moe_share
    dense, width = (1 - share) * shape.dense_ffn / tp, shape.ffn / tp
    dense = where(share > 0, dense, width)
    visits = share * tokens * shape.top_k * expert_load(shape, layout)
    shared = share * tokens * shape.shared_experts
    local_experts = share * (shape.experts / layout.expert + shape.shared_experts)
    return MlpWork(
        flops=2 * h * matrices * (tokens * dense + (visits + shared) * width),
        elements=(
            2 * h * (tokens + visits)
            + matrices * (tokens * dense + (visits + shared) * width)
            + h * matrices * (dense + local_experts * width)
        ),
        wide_elements=(matrices - 1) * (tokens * dense + (visits + shared) * width),
        dispatched_elements=visits * h / (1 + layout.sequence_parallel * (tp - 1)),
    )


IMBALANCE = 1.1
"""The largest load of a rank's experts over the mean with learned routing, by judgement: a balancing loss or bias
is assumed."""


def expert_load(shape: Shape, layout: Layout) -> Number:
    """Returns the copies that the busiest rank's experts get, over the mean. A capacity factor bounds it, and
    experts compute their empty places."""
    uneven = 1 + (IMBALANCE - 1) * shape.learned_routing * flag(layout.expert > 1)
    return where(shape.capacity > 0, shape.capacity, uneven)


def model_flops(shape: Shape, *, batch: Number, trained: Number = 1.0) -> Number:
    """Returns the operations of one iteration without recomputation: what MFU counts (arXiv:2204.02311, appendix
    B). Forward counts once, backward once for the gradients of activations, and once for those of the weights.

    Args:
        trained: parameters with gradients over all parameters. Below 1, weights have no gradients but this share.
    """
    tokens = batch * shape.sequence
    h = shape.hidden
    used = shape.ffn + shape.moe_share * ((shape.top_k + shape.shared_experts - 1) * shape.ffn)
    used = used + where(shape.moe_share > 0, (1 - shape.moe_share) * (shape.dense_ffn - shape.ffn), 0.0)
    passes = 2 + trained
    attention = h * (2 * shape.query + 2 * shape.key_value)
    attention = where(shape.latent_split > 0, shape.latent_split + shape.latent_whole, attention)
    scores = 3 * 4 * shape.sequence * shape.query
    layer = passes * 2 * (attention + h * shape.mlp_matrices * used) + scores * attended_share(shape)
    modules = shape.predicted * (layer + passes * 2 * 2 * h * h)
    total = tokens * (shape.layers * layer + modules)
    out = batch * shape.decoder_sequence
    decoder = passes * 2 * h * (4 * shape.query + 2 * shape.key_value + shape.mlp_matrices * shape.ffn)
    decoder = decoder + 3 * 4 * (shape.decoder_sequence + shape.sequence) * shape.query
    total = total + shape.decoder_layers * (out * decoder + passes * 4 * tokens * h * shape.key_value)
    head = 2 + flag(trained >= 1)
    return total + head * 2 * tokens_of_head(shape, batch) * (1 + shape.predicted) * h * shape.vocab


def attended_share(shape: Shape) -> Number:
    """Returns the scores that the layers compute over those without windows, in the mean over all layers."""
    if not has(shape.window_share > 0):
        return 1.0
    return 1 - shape.window_share * (1 - window_scores(shape, shape.sequence))


def window_scores(shape: Shape, sequence: Number) -> Number:
    """Returns the scores inside a window over those without one.

    A window of w tokens has s w - w (w - 1) / 2 of the s (s + 1) / 2 scores of a causal mask (Mistral 7B,
    arXiv:2310.06825, section 2), and w s of the s s scores of full attention.
    """
    w = np.minimum(where(shape.window > 0, shape.window, sequence), sequence)
    causal = w * (2 * sequence - w + 1) / (sequence * (sequence + 1))
    return blend(shape.causal, causal, w / sequence)


def tokens_of_head(shape: Shape, batch: Number) -> Number:
    """Returns the tokens that reach the vocabulary layer: the decoder's where there is one."""
    encoder_only = flag(shape.decoder_layers == 0)
    return batch * (encoder_only * shape.head_share * shape.sequence + (1 - encoder_only) * shape.decoder_sequence)
