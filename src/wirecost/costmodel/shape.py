"""Converts a workload's dimensions to the inputs of the formulas."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.costmodel.inputs import Shape
from wirecost.spec import Family, Workload
from wirecost.spec.parameters import count, whole_parameters
from wirecost.spec.workload import LatentAttention

MASKED_SHARE = 0.15
"""The share of a sequence's tokens that BERT predicts (Devlin et al. 2018, arXiv:1810.04805, section 3.1)."""


def shape_of(workload: Workload) -> Shape:
    """Returns the workload's dimensions and parameter counts as the formulas read them."""
    parts = count(workload)
    moe = workload.mixture_of_experts
    d = workload.head_size
    query, key_value = float(workload.heads * d), float(workload.key_value_heads * d)
    latent = _Latent()
    if workload.latent_attention is not None:
        latent = _latent(workload.hidden, workload.heads, workload.latent_attention)
        query = key_value = latent.head_width * workload.heads
    window = workload.sliding_window or 0
    windowed = max(workload.layers - workload.full_attention_layers, 0) if window else 0
    experts_share = (workload.layers - workload.dense_mlp_layers) / workload.layers if moe else 0.0
    # The parameters of the layers without experts are counted as a difference to the others.
    dense_difference = parts.dense_difference
    whole = whole_parameters(workload)
    return Shape(
        layers=float(workload.layers),
        hidden=float(workload.hidden),
        heads=float(workload.heads),
        query=query,
        key_value=key_value,
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
        # More places than tokens would stay empty.
        capacity=float(min(moe.capacity_factor or 0.0, moe.experts / moe.top_k) if moe else 0.0),
        learned_routing=float(moe is not None and moe.routing == "learned"),
        used_groups=float(moe.top_k_groups if moe and moe.groups > moe.top_k_groups else 0),
        masked=float(
            max(1, round(MASKED_SHARE * workload.sequence_length)) if workload.family is Family.BERT else 0
        ),
        expert_parameters=experts_share * parts.experts_of_layer,
        decoder_layers=float(workload.decoder_layers or 0),
        decoder_sequence=float(workload.decoder_sequence) if workload.family is Family.T5 else 0.0,
        decoder_layer_parameters=float(parts.decoder_layer),
        tied=float(workload.tied_embeddings),
        latent_split=latent.split,
        latent_whole=latent.whole,
        latent_width=latent.width,
        latent_inputs=latent.inputs,
        latent_shared=latent.shared,
        whole=whole.layers / (workload.layers + (workload.decoder_layers or 0)),
        whole_ends=float(whole.ends),
        repeated_ends=float(whole.repeated_ends),
        aux_loss=float(moe is not None and moe.aux_loss > 0),
        window=float(window),
        window_share=windowed / workload.layers,
        predicted=float(workload.multi_token_prediction),
        module_parameters=float(parts.prediction_module),
        module_experts=float(parts.experts_of_layer),
    )


@dataclass(frozen=True)
class _Latent:
    """Sizes of latent attention: weights that tensor parallelism splits and that it doesn't, features of a token
    between the products, those that its heads read and those of them that all heads share, and the mean size of a
    head's keys and values. 0 for ordinary attention."""

    split: float = 0.0
    whole: float = 0.0
    width: float = 0.0
    inputs: float = 0.0
    shared: float = 0.0
    head_width: float = 0.0


def _latent(hidden: int, heads: int, sizes: LatentAttention) -> _Latent:
    """Returns the sizes of latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    The products that make the vectors of low rank are the same on every tensor-parallel rank, those that make
    heads from them are split, as Megatron-Core does.
    """
    query_head = sizes.nope_head_dim + sizes.rope_head_dim
    down = hidden * (sizes.kv_rank + sizes.rope_head_dim)
    up = sizes.kv_rank * heads * (sizes.nope_head_dim + sizes.value_head_dim)
    width = 2 * sizes.kv_rank + sizes.rope_head_dim
    if sizes.q_rank is None:
        up += hidden * heads * query_head
    else:
        down += hidden * sizes.q_rank
        up += sizes.q_rank * heads * query_head
        width += 2 * sizes.q_rank
    output = heads * sizes.value_head_dim * hidden
    inputs = (sizes.q_rank or hidden) + sizes.kv_rank + sizes.rope_head_dim
    head_width = (query_head + sizes.value_head_dim) / 2
    shared = float(sizes.rope_head_dim)
    return _Latent(float(up + output), float(down), float(width), float(inputs), shared, head_width)
