"""Converts a workload's dimensions to the inputs of the formulas."""

from __future__ import annotations

from wirecost.costmodel.inputs import Shape
from wirecost.spec import Family, Workload
from wirecost.spec.parameters import count


def shape_of(workload: Workload) -> Shape:
    """Returns the workload's dimensions and parameter counts as the formulas read them."""
    parts = count(workload)
    moe = workload.mixture_of_experts
    d = workload.head_size
    experts_share = (workload.layers - workload.dense_mlp_layers) / workload.layers if moe else 0.0
    # The parameters of the layers without experts are counted as a difference to the others.
    dense_difference = parts.dense_difference
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
        layer_parameters=parts.layer + (1 - experts_share) * dense_difference,
        embedding_parameters=float(parts.embedding),
        other_parameters=parts.other - (1 - experts_share) * workload.layers * dense_difference,
        causal=1.0 if workload.family is Family.GPT else 0.0,
        experts=float(moe.experts if moe else 1),
        top_k=float(moe.top_k if moe else 1),
        shared_experts=float(moe.shared_experts if moe else 0),
        moe_share=experts_share,
        dense_ffn=float(workload.ffn),
        capacity=float((moe.capacity_factor or 0.0) if moe else 0.0),
        learned_routing=float(moe is not None and moe.routing == "learned"),
        used_groups=float(moe.top_k_groups if moe and moe.groups > moe.top_k_groups else 0),
        expert_parameters=experts_share * parts.experts_of_layer,
        decoder_layers=float(workload.decoder_layers or 0),
        decoder_sequence=float(workload.decoder_sequence) if workload.family is Family.T5 else 0.0,
        decoder_layer_parameters=float(parts.decoder_layer),
        tied=float(workload.tied_embeddings),
    )
