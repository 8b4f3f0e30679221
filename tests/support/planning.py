"""Short ways to searches of plans for tests."""

from __future__ import annotations

from typing import Any

from wirecost.planner.answer import Answer, answer
from wirecost.planner.constraints import parse_constraints
from wirecost.planner.question import Question
from wirecost.spec import Workload, load_spec, stack_named, validate, with_nodes


def small_model(**keys: Any) -> Workload:
    """Returns a model that is small enough for every plan to fit."""
    data = {"name": "small", "layers": 4, "hidden": 256, "heads": 4, "vocab_size": 1024, "sequence_length": 256}
    workload: Workload = validate(Workload, {**data, **keys}, "small")
    return workload


def question(
    workload: str | Workload = "llama-3-8b",
    cluster: str = "dgx-h100",
    gpus: int = 8,
    batch: int = 64,
    *constraints: str,
    stacks: tuple[str, ...] = ("megatron-core",),
    **keys: Any,
) -> Question:
    """Returns a question."""
    model = load_spec("workload", workload) if isinstance(workload, str) else workload
    machine = with_nodes(load_spec("cluster", cluster), gpus)
    chosen = tuple(stack_named(name) for name in stacks)
    return Question(model, machine, gpus, batch, chosen, constraints=parse_constraints(constraints), **keys)


def answered(*args: Any, **keys: Any) -> Answer:
    """Returns the answer of a question."""
    return answer(question(*args, **keys))


TWO_NODES = "{gpu: A100-SXM-80GB, gpus_per_node: 2, nodes: 8, intra_node: nvlink3, inter_node: infiniband-hdr}"
"""A cluster of small nodes, on which few GPUs are several nodes."""
