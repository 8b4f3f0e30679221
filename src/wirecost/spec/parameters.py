"""Exact parameter counts of GPT, BERT and T5 shaped transformers, by part.

Layout of the parts: Vaswani et al. 2017 (arXiv:1706.03762) for the blocks, Devlin et al. 2018 (arXiv:1810.04805)
for BERT's extra parts (token types, pooler, masked-language-model head), Raffel et al. 2019 (arXiv:1910.10683)
for T5's cross attention and 32 relative-position buckets in each stack.
"""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.spec.workload import Family, LatentAttention, Workload

T5_BUCKETS = 32


@dataclass(frozen=True)
class ParameterCount:
    """Trainable parameters; `total` counts tied weights once, and no modules of multi-token prediction, as
    published counts do."""

    layer: int  # one encoder (or only) layer, all experts; the mean where only some layers have experts
    decoder_layer: int
    experts_of_layer: int
    embedding: int  # token embedding
    other: int  # positions, final norms, untied head, BERT's heads
    total: int
    dense_difference: int = 0  # of a layer without experts to one with them
    prediction_module: int = 0  # of multi-token prediction, without the shared embedding and output layer


def _norm(workload: Workload) -> int:
    return workload.hidden * (2 if workload.norm == "layernorm" else 1)


def attention_parameters(workload: Workload) -> int:
    """Returns the parameters of the query, key, value and output projections of one attention."""
    if latent := workload.latent_attention:
        return _latent_parameters(workload.hidden, workload.heads, latent)
    h, d = workload.hidden, workload.head_size
    wide = (workload.heads + 2 * workload.key_value_heads) * d
    biases = wide + h if workload.biases else 0
    return h * wide + workload.heads * d * h + biases


def _latent_parameters(hidden: int, heads: int, latent: LatentAttention) -> int:
    """Returns the parameters of latent attention with its two norms (arXiv:2405.04434, section 2.1)."""
    query = heads * (latent.nope_head_dim + latent.rope_head_dim)
    queries = latent.q_rank * (hidden + 1 + query) if latent.q_rank else hidden * query
    keys = hidden * (latent.kv_rank + latent.rope_head_dim) + latent.kv_rank
    values = latent.kv_rank * heads * (latent.nope_head_dim + latent.value_head_dim)
    return queries + keys + values + heads * latent.value_head_dim * hidden


def mlp_parameters(workload: Workload, ffn: int) -> int:
    """Returns the parameters of one MLP of width `ffn`."""
    matrices = 3 if workload.gated else 2
    biases = (matrices - 1) * ffn + workload.hidden if workload.biases else 0
    return matrices * workload.hidden * ffn + biases


def count(workload: Workload) -> ParameterCount:
    """Returns the parameters of a workload, exact for the published layouts (see the tests for the published
    figures)."""
    h = workload.hidden
    mlp, experts = _mlps(workload)
    layer = attention_parameters(workload) + mlp + 2 * _norm(workload) + workload.extra_layer_parameters
    decoder_layer = 0
    embedding = workload.vocab_size * h
    other = _norm(workload) + workload.extra_parameters  # the norm is before the head
    if workload.positions == "learned":
        other += max(workload.sequence_length, workload.decoder_sequence_length or 0) * h
    if not workload.tied_embeddings:
        other += embedding
    if workload.family is Family.BERT:
        # Token types; pooler; the masked-language-model head's transform, norm and bias; next-sentence head.
        other += 2 * h + (h * h + h) + (h * h + h + _norm(workload) + workload.vocab_size) + (2 * h + 2)
    if workload.family is Family.T5:
        decoder_layer = layer + attention_parameters(workload) + _norm(workload)
        other += _norm(workload)  # the encoder's final norm
        if workload.positions == "relative":
            other += 2 * T5_BUCKETS * workload.heads
    decoders = workload.decoder_layers or 0
    dense_difference = 0
    if workload.dense_mlp_layers:
        dense_difference = mlp_parameters(workload, workload.ffn) - mlp
        other += workload.dense_mlp_layers * dense_difference
    total = workload.layers * layer + decoders * decoder_layer + embedding + other
    # A layer, the product that joins two vectors into one, and the norms of both (arXiv:2412.19437, section 2.2);
    # the output layer's norm is the module's own.
    module = layer + 2 * h * h + 3 * _norm(workload)
    return ParameterCount(layer, decoder_layer, experts, embedding, other, total, dense_difference, module)


def _mlps(workload: Workload) -> tuple[int, int]:
    """Returns the parameters of all MLPs and the router of a layer with experts, and those of the experts among
    them."""
    moe = workload.mixture_of_experts
    if moe is None:
        return mlp_parameters(workload, workload.ffn), 0
    each = mlp_parameters(workload, moe.expert_ffn_hidden or workload.ffn)
    router = workload.hidden * moe.experts
    return (moe.experts + moe.shared_experts) * each + router, moe.experts * each


@dataclass(frozen=True)
class WholeParameters:
    """The parameters that tensor parallelism doesn't split, besides the products of latent attention: norms,
    positions, biases of row-parallel linears, routers."""

    layers: int  # of all layers
    ends: int  # outside of layers
    repeated_ends: int  # of `ends`, BERT's head, which every rank computes for the whole sequence


def whole_parameters(workload: Workload) -> WholeParameters:
    """Returns the parameters that tensor parallelism doesn't split."""
    h, norm, decoders = workload.hidden, _norm(workload), workload.decoder_layers or 0
    count_of_layers = workload.layers + decoders
    layers = count_of_layers * 2 * norm + decoders * norm
    if workload.biases:
        layers += (2 * count_of_layers + decoders) * h
    if latent := workload.latent_attention:
        layers += count_of_layers * (latent.kv_rank + (latent.q_rank or 0))  # the norms of its narrow vectors
    if moe := workload.mixture_of_experts:
        layers += (workload.layers - workload.dense_mlp_layers) * moe.experts * h
    ends, repeated = norm, 0
    if workload.positions == "learned":
        ends += max(workload.sequence_length, workload.decoder_sequence_length or 0) * h
    if workload.family is Family.T5:
        ends += norm
    if workload.family is Family.BERT:
        repeated = 2 * (h * h + h) + norm + 2 * h + 2
        ends += 2 * h + repeated
    return WholeParameters(layers, ends, repeated)
