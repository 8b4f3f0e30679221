"""A workload's dimensions as the formulas read them."""

from __future__ import annotations

from wirecost.costmodel.inputs import Shape
from wirecost.spec import Family, Workload
from wirecost.spec.parameters import count


def shape_of(workload: Workload) -> Shape:
    """Returns the workload's dimensions and parameter counts as the formulas read them."""
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
