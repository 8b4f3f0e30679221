"""The levels of the hierarchical fit: which properties stacks, GPUs and links share, and how far they spread.

`mean` is what is assumed before any measurement, `of_mean` the standard deviation of the mean, and `between` that
of a single stack, GPU or link around it, in logarithms (of a share in log-odds). Both are judged: those of
overlaps are wide because published tables hardly determine them, those of kernels' efficiencies narrow because
vendor libraries are shared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.calibration.properties import PROPERTIES, Parts


@dataclass(frozen=True)
class Shared:
    """A property with its mean for one class of owners (a kind of attention, an architecture, a place of a link;
    '*': all), and its spread."""

    kind: str
    key: str
    mean: float
    of_mean: float
    between: float
    of_class: str = "*"
    odds: bool = False


FUSED, UNFUSED = "fused", "unfused"

SHARED: tuple[Shared, ...] = (
    Shared("stack", "matrix_efficiency", 1.0, 0.03, 0.10),
    Shared("stack", "attention_efficiency", 0.5, 0.4, 0.35, FUSED),
    Shared("stack", "attention_efficiency", 0.7, 0.3, 0.2, UNFUSED),
    Shared("stack", "attention_bytes_forward", 9.0, 0.5, 0.3, UNFUSED),
    Shared("stack", "attention_bytes_backward", 20.0, 0.5, 0.3, UNFUSED),
    Shared("stack", "hidden_bytes", 20.0, 0.4, 0.3, FUSED),
    Shared("stack", "hidden_bytes", 20.0, 0.4, 0.3, UNFUSED),
    Shared("stack", "sharded_bytes", 10.0, 0.4, 0.3, FUSED),
    Shared("stack", "sharded_bytes", 7.0, 0.4, 0.3, UNFUSED),
    Shared("stack", "expert_bytes", 20.0, 0.3, 0.2),
    Shared("stack", "host_experts", 2.0, 0.3, 0.2),
    Shared("stack", "low_precision_efficiency", 0.8, 0.5, 0.35, odds=True),
    Shared("stack", "host_forward_s", 3e-4, 0.4, 0.5, FUSED),
    Shared("stack", "host_forward_s", 8e-4, 0.4, 0.5, UNFUSED),
    Shared("stack", "host_backward_s", 4e-4, 0.4, 0.5, FUSED),
    Shared("stack", "host_backward_s", 8e-4, 0.4, 0.5, UNFUSED),
    Shared("stack", "vocabulary_bytes", 20.0, 0.4, 0.4),
    Shared("stack", "optimizer_bytes", 30.0, 0.2, 0.3),
    Shared("stack", "iteration_s", 4e-3, 0.5, 0.7),
    Shared("stack", "gradient_sync_s", 5e-4, 0.5, 0.5),
    Shared("stack", "data_parallel_overlap", 0.6, 0.7, 0.8, odds=True),
    Shared("stack", "shard_overlap", 0.75, 0.7, 0.8, odds=True),
    Shared("stack", "tensor_overlap", 0.3, 0.7, 0.8, FUSED, odds=True),
    Shared("stack", "pipeline_exposed", 0.5, 0.4, 0.5),
    Shared("stack", "collective_sync_s", 1e-5, 0.5, 0.7),
    Shared("stack", "host_collective_s", 4e-5, 0.5, 0.5),
    Shared("stack", "host_softmax_fallback_s", 3e-4, 0.5, 0.5, UNFUSED),
    Shared("stack", "host_sharpness", 4.0, 0.3, 0.5),
    Shared("stack", "host_vocabulary_s", 1e-3, 0.5, 0.5),
    Shared("stack", "vocabulary_efficiency", 0.9, 0.3, 0.4, odds=True),
    Shared("stack", "unaligned_efficiency", 0.4, 0.3, 0.3, odds=True),
    Shared("stack", "straggler", 4e-3, 0.5, 0.5),
    Shared("gpu", "matrix_efficiency", 0.72, 0.25, 0.2, "volta", odds=True),
    Shared("gpu", "matrix_efficiency", 0.80, 0.25, 0.15, "ampere", odds=True),
    Shared("gpu", "matrix_efficiency", 0.68, 0.25, 0.15, "hopper", odds=True),
    Shared("gpu", "matrix_efficiency", 0.66, 0.25, 0.2, "blackwell", odds=True),
    Shared("gpu", "matrix_efficiency", 0.45, 0.4, 0.25, "cdna2", odds=True),
    Shared("gpu", "matrix_efficiency", 0.45, 0.4, 0.25, "cdna3", odds=True),
    Shared("gpu", "matrix_efficiency", 0.45, 0.4, 0.25, "cdna4", odds=True),
    Shared("gpu", "matrix_efficiency", 0.60, 0.4, 0.25, "gaudi", odds=True),
    Shared("gpu", "matrix_traffic", 0.55, 0.3, 0.3),
    Shared("gpu", "attention_efficiency", 1.0, 0.3, 0.15, "volta"),
    Shared("gpu", "attention_efficiency", 1.0, 0.02, 0.02, "ampere"),
    Shared("gpu", "attention_efficiency", 0.85, 0.2, 0.15, "hopper"),
    Shared("gpu", "attention_efficiency", 0.75, 0.2, 0.15, "blackwell"),
    Shared("gpu", "attention_efficiency", 0.8, 0.3, 0.2, "cdna3"),
    Shared("gpu", "attention_efficiency", 0.8, 0.3, 0.2, "cdna4"),
    Shared("gpu", "attention_efficiency", 0.8, 0.3, 0.2, "gaudi"),
    Shared("link", "efficiency", 0.78, 0.3, 0.4, "inter", odds=True),
    Shared("link", "half_rate_bytes", 6e6, 0.5, 0.3, "inter"),
    Shared("link", "latency_per_step", 10e-6, 0.4, 0.4, "inter"),
    Shared("link", "shared_efficiency", 0.6, 0.4, 0.8, "inter", odds=True),
)


OVERLAPPING = ("megatron-core", "xla", "torchtitan", "generic", "habana")
"""Stacks that can overlap tensor-parallel collectives with the products beside them. Others do not."""
AFTER_BACKWARD = ("megatron-lm-2021", "megatron-deepspeed", "deepspeed-zero3-2021")
"""Stacks that reduce gradients when backward has ended, so that nothing hides them (Megatron-LM's local DDP)."""


def has_property(name: str, key: str) -> bool:
    """Returns whether a stack, GPU or link has a property that the fit may move: overlaps that a stack does not
    have are no properties of it."""
    if key == "tensor_overlap":
        return name in OVERLAPPING
    return key != "data_parallel_overlap" or name not in AFTER_BACKWARD


JUDGED = {
    ("habana", "hidden_bytes"): 0.35,
    ("habana", "sharded_bytes"): 0.35,
    ("omni-path-100", "efficiency"): 0.2,
    ("nanotron", "host_forward_s"): 1.3,
    ("nanotron", "host_backward_s"): 1.3,
}
"""Ratios of properties (of shares: of their odds) to the mean that are assumed before any measurement. Gaudi's
element-wise and matrix engines work side by side (Intel Gaudi 2 white paper), so that two thirds of the traffic
are taken as hidden; nanotron launches from Python without compiled blocks; benchmarks of all-reduce on Omni-Path
reach a third of the line rate (collective_microbench.csv, Jean Zay)."""


@dataclass(frozen=True)
class Level:
    """One number that is fitted: the deviation of the mean of a class (`name` None), or of one owner."""

    shared: Shared
    name: str | None
    sd: float

    @property
    def key(self) -> str:
        """Returns the property's key."""
        return self.shared.key

    def touches(self, owner: tuple[str, str, str]) -> bool:
        """Returns whether the level is part of an owner's (kind, name, class) property."""
        kind, name, of_class = owner
        return (
            kind == self.shared.kind
            and self.shared.of_class in ("*", of_class)
            and (self.name is None or self.name == name)
            and has_property(name, self.key)
        )


def value_at(shared: Shared, deviation: float) -> float:
    """Returns the property's value at a deviation from its mean, within its bounds."""
    entry = PROPERTIES[shared.kind, shared.key]
    if shared.odds:
        odds = math.log(shared.mean / (1 - shared.mean)) + deviation
        value = 1 / (1 + math.exp(-odds))
        return min(max(value, entry.low / 2), 0.995)
    return min(max(shared.mean * math.exp(deviation), entry.low / 10), entry.high)


def levels_of(parts: Sequence[Parts]) -> list[Level]:
    """Returns the levels of all stacks, GPUs and links in use."""
    owners = sorted(
        {("stack", p.stack.name, p.stack.attention.kind) for p in parts}
        | {("gpu", p.gpu.name, p.gpu.architecture) for p in parts}
        | {("link", p.inter.name, "inter") for p in parts}
    )
    levels: list[Level] = []
    for shared in SHARED:
        mine = [
            name
            for kind, name, of in owners
            if kind == shared.kind and shared.of_class in ("*", of) and has_property(name, shared.key)
        ]
        if mine:
            levels.append(Level(shared, None, shared.of_mean))
            levels += [Level(shared, name, shared.between) for name in mine]
    return levels
