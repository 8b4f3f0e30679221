"""Checks whether context parallelism can split the sequences of a workload."""

from __future__ import annotations

from wirecost.spec import Family, Plan, Workload
from wirecost.spec.workload import nearest_multiples


def check_context_parallel(workload: Workload, plan: Plan) -> str | None:
    """Returns why context parallelism can't split a workload's sequences, or None if it can."""
    if plan.context_parallel == 1:
        return None
    where = f"workload '{workload.name}' with plan '{plan.name}'"
    if workload.family is not Family.GPT:
        return (
            f"{where}: context_parallel splits causal sequences, so it needs family gpt, not {workload.family}; "
            "use tensor_parallel with sequence_parallel"
        )
    if workload.latent_attention is not None:
        return (
            f"{where}: context_parallel gathers keys and values of one size, which latent_attention hasn't; use "
            "tensor_parallel with sequence_parallel"
        )
    chunks = 2 * plan.context_parallel
    if plan.sequence_parallel:
        chunks *= plan.tensor_parallel
    if workload.sequence_length % chunks:
        return (
            f"{where}: sequence_length {workload.sequence_length} does not divide over {chunks} chunks, 2 for "
            f"each of {plan.context_parallel} ranks; nearest that does: "
            f"{nearest_multiples(workload.sequence_length, chunks)}"
        )
    return None
