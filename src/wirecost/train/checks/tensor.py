"""Checks whether a workload divides over tensor-parallel ranks."""

from __future__ import annotations

from wirecost.spec import Plan, Workload
from wirecost.spec.workload import nearest_multiples


def check_tensor_parallel(workload: Workload, plan: Plan) -> str | None:
    """Returns why tensor or sequence parallelism can't split a workload, or None if it can.

    The vocabulary needn't divide, because it is padded.
    """
    ranks = plan.tensor_parallel
    counts = {"heads": workload.heads, "ffn_hidden": workload.ffn}
    if workload.latent_attention is None:
        counts["kv_heads"] = workload.key_value_heads
    for name, count in counts.items():
        if count % ranks:
            return (
                f"workload '{workload.name}' with plan '{plan.name}': {name} {count} does not divide over "
                f"tensor_parallel {ranks}; nearest that does: {nearest_multiples(count, ranks)}"
            )
    if not plan.sequence_parallel:
        return None
    slices = ranks * plan.context_parallel
    lengths = {
        "sequence_length": workload.sequence_length,
        "decoder_sequence_length": workload.decoder_sequence_length,
    }
    for name, length in lengths.items():
        if length and length % slices:
            return (
                f"workload '{workload.name}' with plan '{plan.name}': {name} {length} does not divide over "
                f"{slices} slices of sequence parallelism; nearest that does: {nearest_multiples(length, slices)}"
            )
    return None
