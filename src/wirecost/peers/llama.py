"""The workloads that other projects' stacks can train as their Llama."""

from __future__ import annotations

from wirecost.errors import SpecError
from wirecost.spec import load_spec
from wirecost.spec.workload import Family, Workload


def llama_workload(name: str) -> Workload:
    """Returns a workload that is a Llama without experts.

    Args:
        name: name of a preset, or the path of a YAML file.

    Raises:
        SpecError: if the workload is unknown, or isn't a Llama.
    """
    workload = load_spec("workload", name)
    is_llama = (
        workload.family is Family.GPT
        and (workload.activation, workload.norm, workload.positions) == ("swiglu", "rmsnorm", "rotary")
        and not (workload.biases or workload.tied_embeddings or workload.parallel_block or workload.sliding_window)
        and workload.mixture_of_experts is None
        and workload.latent_attention is None
    )
    if not is_llama:
        raise SpecError(f"workload '{name}': only those of family llama, without experts, can be trained here")
    return workload
