"""Compares two plans: their choices, and the parts of their iterations and of their memory."""

from __future__ import annotations

from dataclasses import dataclass, fields

from wirecost.planner.choices import Choice
from wirecost.planner.parts import PARTS
from wirecost.prediction.predict import Prediction, memory_parts

CAUSES = {
    "compute_s": "kernels: recomputation, size of the products, uneven stages",
    "host_s": "the host launches kernels more slowly than the GPU runs them: more or smaller micro-batches",
    "bubble_s": "stages wait while the pipeline fills and drains: more stages, fewer micro-batches or chunks",
    "tensor_s": "collectives inside layers: the degree of TP, and whether it stays inside a node",
    "context_expert_s": "keys and values round the ring of CP, tokens to their experts and back",
    "pipeline_s": "activations from stage to stage: more chunks, more micro-batches",
    "gradient_s": "gradients of the data-parallel group that nothing hides",
    "parameter_s": "parameters that ZeRO gathers and nothing hides",
    "embedding_sync_s": "the first and the last stage sum the gradient of a tied embedding",
    "optimizer_s": "the parameters that a rank updates",
    "straggler_s": "the slowest of the nodes",
    "other_s": "what an iteration does once",
}
"""What decides each part."""


@dataclass(frozen=True)
class Difference:
    """A part of two plans, in seconds or bytes."""

    name: str
    first: float
    second: float
    cause: str = ""

    @property
    def more(self) -> float:
        """How much more the second plan has."""
        return self.second - self.first


@dataclass(frozen=True)
class Explanation:
    """Two plans and where they differ.

    Attributes:
        first, second: the plans.
        choices: names and values of the choices that differ, in the first and in the second.
        times: parts of the iteration in seconds, those that differ most first.
        memory: parts of the memory in bytes.
        half_width: half the width of the 90 % interval of the ratio of their times, in natural logarithms.
    """

    first: Choice
    second: Choice
    choices: tuple[tuple[str, str, str], ...]
    times: tuple[Difference, ...]
    memory: tuple[Difference, ...]
    half_width: float


def explain(first: tuple[Choice, Prediction], second: tuple[Choice, Prediction], half_width: float) -> Explanation:
    """Returns where two plans differ."""
    (a, before), (b, after) = first, second
    times = [
        Difference(name, float(getattr(before.times, key)), float(getattr(after.times, key)), CAUSES[key])
        for key, name in PARTS.items()
    ]
    memory = [
        Difference(name, size, other)
        for (name, size), (_, other) in zip(memory_parts(before), memory_parts(after), strict=True)
    ]
    choices = tuple(
        (field.name, _text(getattr(a, field.name)), _text(getattr(b, field.name)))
        for field in fields(Choice)
        if getattr(a, field.name) != getattr(b, field.name)
    )
    if before.setup.stack.name != after.setup.stack.name:
        choices = (("stack", before.setup.stack.name, after.setup.stack.name), *choices)
    ordered = sorted((t for t in times if t.first or t.second), key=lambda t: -abs(t.more))
    return Explanation(a, b, choices, tuple(ordered), tuple(memory), half_width)


def _text(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
