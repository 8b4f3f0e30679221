"""Features of a workload that the formulas don't describe."""

from __future__ import annotations

from collections.abc import Iterator

from wirecost.spec import Workload


def approximations(workload: Workload) -> list[str]:
    """Returns a sentence for each feature of a workload that changes the numbers and isn't in the formulas."""
    return [f"model '{workload.name}': {text}" for text in _of_keys(workload)]


def _of_keys(workload: Workload) -> Iterator[str]:
    window, layers = workload.sliding_window, workload.layers
    if window is not None and window < workload.sequence_length:
        windowed = max(layers - workload.full_attention_layers, 0)
        yield (
            f"a sliding window of {window} tokens in {windowed} of {layers} layers is predicted as attention to "
            f"all {workload.sequence_length} tokens, which takes longer"
        )
    if workload.parallel_block:
        yield (
            "attention and MLP of a layer read the same input, and are predicted one after the other, with "
            "one more exchange between tensor-parallel ranks in each pass"
        )
    if workload.positions == "alibi":
        yield "the biases of ALiBi take no time in predictions"
    if workload.latent_attention is not None:
        yield (
            f"latent attention is predicted as grouped attention with {workload.key_value_heads} heads of "
            f"{workload.head_size} for keys and values; parameters are exact"
        )
    moe = workload.mixture_of_experts
    if moe is not None and moe.moe_layers is not None and workload.dense_mlp_layers:
        yield (
            f"{moe.moe_layers} of {layers} layers have experts, and every layer is predicted with the operations "
            "of a layer with experts; parameters are exact"
        )
    yield from workload.approximations
