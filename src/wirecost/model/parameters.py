"""Exact parameter counts of GPT, BERT and T5 shaped transformers, by part.

Layout of the parts: Vaswani et al. 2017 (arXiv:1706.03762) for the blocks, Devlin et al. 2018 (arXiv:1810.04805)
for BERT's extra parts (token types, pooler, masked-language-model head), Raffel et al. 2019 (arXiv:1910.10683)
for T5's cross attention and 32 relative-position buckets in each stack.
"""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.model.inputs import Shape
from wirecost.spec import Family, Workload

T5_BUCKETS = 32


@dataclass(frozen=True)
class ParameterCount:
    """Trainable parameters; `total` counts tied weights once."""

    layer: int  # one encoder (or only) layer, all experts
    decoder_layer: int
    experts_of_layer: int
    embedding: int  # token embedding
    other: int  # positions, final norms, untied head, BERT's heads
    total: int


def _norm(workload: Workload) -> int:
    return workload.hidden * (2 if workload.norm == "layernorm" else 1)


def attention_parameters(workload: Workload) -> int:
    """Query, key, value and output projections of one attention."""
    h, d = workload.hidden, workload.head_size
    wide = (workload.heads + 2 * workload.key_value_heads) * d
    biases = wide + h if workload.biases else 0
    return h * wide + workload.heads * d * h + biases


def mlp_parameters(workload: Workload, ffn: int) -> int:
    matrices = 3 if workload.gated else 2
    biases = (matrices - 1) * ffn + workload.hidden if workload.biases else 0
    return matrices * workload.hidden * ffn + biases


def count(workload: Workload) -> ParameterCount:
    """Parameters of a workload, exact for the published layouts (see the tests for the published figures)."""
    moe = workload.mixture_of_experts
    h = workload.hidden
    experts = 0
    if moe is None:
        mlp = mlp_parameters(workload, workload.ffn)
    else:
        experts = moe.experts * mlp_parameters(workload, moe.expert_ffn_hidden or workload.ffn)
        shared = moe.shared_experts * mlp_parameters(workload, moe.expert_ffn_hidden or workload.ffn)
        mlp = experts + shared + h * moe.experts  # and the router
    layer = attention_parameters(workload) + mlp + 2 * _norm(workload)
    decoder_layer = 0
    embedding = workload.vocab_size * h
    other = _norm(workload)  # before the head
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
    if moe is not None and moe.dense_layers:
        # The formulas know one kind of layer: the first layers' dense MLPs count as difference to it.
        other += moe.dense_layers * (mlp_parameters(workload, workload.ffn) - mlp)
    total = workload.layers * layer + decoders * decoder_layer + embedding + other
    return ParameterCount(layer, decoder_layer, experts, embedding, other, total)


def shape_of(workload: Workload) -> Shape:
    """The workload as the model's formulas read it."""
    parts = count(workload)
    moe = workload.mixture_of_experts
    d = workload.head_size
    return Shape(
        layers=float(workload.layers),
        hidden=float(workload.hidden),
        heads=float(workload.heads),
        query=float(workload.heads * d),
        key_value=float(workload.key_value_heads * d),
        ffn=float((moe.expert_ffn_hidden if moe else None) or workload.ffn),
        mlp_matrices=3.0 if workload.gated else 2.0,
        vocab=float(workload.vocab_size),
        sequence=float(workload.sequence_length),
        layer_parameters=float(parts.layer),
        embedding_parameters=float(parts.embedding),
        other_parameters=float(parts.other),
        causal=1.0 if workload.family is Family.GPT else 0.0,
        experts=float(moe.experts if moe else 1),
        top_k=float(moe.top_k + moe.shared_experts if moe else 1),
        expert_parameters=float(parts.experts_of_layer),
        decoder_layers=float(workload.decoder_layers or 0),
        decoder_sequence=float(workload.decoder_sequence) if workload.family is Family.T5 else 0.0,
        decoder_layer_parameters=float(parts.decoder_layer),
        tied=float(workload.tied_embeddings),
    )
