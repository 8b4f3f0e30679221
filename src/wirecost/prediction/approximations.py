"""Features of a workload that the formulas don't describe."""

from __future__ import annotations

from collections.abc import Iterator

from wirecost.spec import Workload


def approximations(workload: Workload) -> list[str]:
    """Returns a sentence for each feature of a workload that changes the numbers and isn't in the formulas."""
    return [f"model '{workload.name}': {text}" for text in _of_keys(workload)]


def _of_keys(workload: Workload) -> Iterator[str]:
    layers = workload.layers
    if workload.parallel_block:
        yield (
            "attention and MLP of a layer read the same input, and are predicted one after the other, with "
            "one more exchange between tensor-parallel ranks in each pass"
        )
    if workload.positions == "alibi":
        yield "the biases of ALiBi take no time in predictions"
    moe = workload.mixture_of_experts
    if moe is not None and moe.moe_layers is not None and workload.dense_mlp_layers:
        yield (
            f"{moe.moe_layers} of {layers} layers have experts, and every layer is predicted with the operations "
            "of a layer with experts; parameters are exact"
        )
    yield from workload.approximations
