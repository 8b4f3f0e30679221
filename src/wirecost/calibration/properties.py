"""The table of the properties of GPUs, links, stacks and shared cores that may be fitted.

A property is named 'KIND NAME KEY', like 'gpu A100-SXM-80GB matrix_efficiency' or 'stack fsdp-flash
host_forward_s'; KEY is its key in the YAML file of that name. Nothing else is fitted: there are no constants of a
row or source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirecost.costmodel.collectives import (
    DEFAULT_EFFICIENCY,
    DEFAULT_HALF_BYTES,
    DEFAULT_LATENCY_S,
    DEFAULT_SHARED,
    DEFAULT_STEP_S,
)
from wirecost.errors import SpecError, one_of
from wirecost.spec import GPU, Link, Provenance, SharedCores, Stack, load_spec
from wirecost.spec.presets import names
from wirecost.units import Seconds

Values = dict[str, float]
"""Values by the properties' names."""

_RANGE = "range of the fitted presets, widened"
_JUDGED = "by judgement"
_PROCESSORS = "range of calibrated GPUs and processors (results/*/calibration)"
_SHARE = "a share; the uncertainty is judged"
_LARGE_PRODUCTS = "share of the peak that large products of vendor libraries reach"
_KERNELS = "bytes that the kernels pass over, each operand at least once"


@dataclass(frozen=True)
class Property:
    """A property with its start, uncertainty and bounds in a fit.

    `start` is where a fit starts if the specification has no value, or 0 (switched off); `uncertainty` is the
    standard deviation of log(value / start) before anything is measured; `low` and `high` bound the value.
    `source` states the source of the uncertainty and the bounds.
    """

    kind: str
    key: str
    start: float
    uncertainty: float
    low: float
    high: float
    unit: str
    source: str


TABLE: tuple[Property, ...] = (
    Property("gpu", "peak_flops", 40e9, 1.2, 1e7, 1e18, "FLOP/s", _PROCESSORS),
    Property("gpu", "matrix_efficiency", 0.75, 0.15, 0.2, 0.92, "share", _LARGE_PRODUCTS),
    Property("gpu", "matrix_traffic", 0.5, 1.0, 0.05, 6.0, "passes", _RANGE),
    Property("gpu", "memory_efficiency", 0.85, 1.0, 0.5, 0.95, "share", _SHARE),
    Property("gpu", "power_throttle", 0.02, 1.0, 1e-3, 0.6, "share", _RANGE),
    Property("gpu", "attention_efficiency", 1.0, 1.0, 0.2, 2.0, "ratio", _RANGE),
    Property("link", "efficiency", 0.8, 0.7, 0.01, 1.0, "share", _SHARE),
    Property("link", "latency", 20e-6, 1.5, 1e-7, 0.1, "s", _PROCESSORS),
    Property("link", "latency_per_step", 2e-6, 1.5, 1e-8, 0.1, "s", _PROCESSORS),
    Property("link", "half_rate_bytes", 1e6, 2.0, 1.0, 1e10, "bytes", _PROCESSORS),
    Property("link", "shared_efficiency", 0.6, 1.0, 0.05, 1.0, "share", _SHARE),
    Property("stack", "attention_efficiency", 0.5, 0.7, 0.02, 1.2, "ratio", _LARGE_PRODUCTS),
    Property("stack", "attention_bytes_forward", 9.0, 1.0, 2.0, 400.0, "bytes/score", _KERNELS),
    Property("stack", "attention_bytes_backward", 18.0, 1.0, 4.0, 800.0, "bytes/score", _KERNELS),
    Property("stack", "matrix_efficiency", 1.0, 1.0, 0.4, 1.2, "ratio", _LARGE_PRODUCTS),
    Property("stack", "low_precision_efficiency", 0.75, 1.0, 0.2, 1.0, "ratio", _RANGE),
    Property("stack", "hidden_bytes", 19.0, 0.7, 4.0, 5e3, "bytes/element", _KERNELS),
    Property("stack", "sharded_bytes", 11.0, 0.5, 2.0, 5e3, "bytes/element", _KERNELS),
    Property("stack", "expert_bytes", 16.0, 0.5, 4.0, 5e3, "bytes/element", _KERNELS),
    Property("stack", "host_experts", 2.0, 0.5, 0.5, 10.0, "ratio", _JUDGED),
    Property("stack", "host_forward_s", 1e-4, 1.0, 1e-7, 1.0, "s/layer", _PROCESSORS),
    Property("stack", "host_backward_s", 1e-4, 1.0, 1e-7, 1.0, "s/layer", _PROCESSORS),
    Property("stack", "host_collective_s", 45e-6, 1.0, 1e-7, 0.1, "s", _RANGE),
    Property("stack", "host_softmax_fallback_s", 140e-6, 1.0, 1e-6, 0.1, "s/layer", _RANGE),
    Property("stack", "host_masked", 1.0, 1.0, 0.5, 6.0, "ratio", _RANGE),
    Property("stack", "host_sharpness", 4.0, 1.0, 1.0, 12.0, "exponent", _JUDGED),
    Property("stack", "host_vocabulary_s", 3e-4, 1.0, 1e-7, 1.0, "s", _PROCESSORS),
    Property("stack", "vocabulary_bytes", 22.0, 0.5, 4.0, 5e3, "bytes/logit", _KERNELS),
    Property("stack", "vocabulary_efficiency", 0.9, 0.2, 0.1, 1.0, "ratio", _LARGE_PRODUCTS),
    Property("stack", "unaligned_efficiency", 0.35, 1.0, 0.1, 1.0, "ratio", _RANGE),
    Property("stack", "embedding_bytes", 40.0, 1.0, 4.0, 4e3, "bytes/element", _KERNELS),
    Property("stack", "optimizer_bytes", 35.0, 0.5, 8.0, 2e3, "bytes/parameter", _KERNELS),
    Property("stack", "iteration_s", 5e-3, 2.0, 1e-7, 10.0, "s", _PROCESSORS),
    Property("stack", "gradient_sync_s", 1e-3, 1.0, 1e-5, 0.1, "s", _RANGE),
    Property("stack", "data_parallel_overlap", 0.14, 1.0, 0.02, 1.0, "share", _SHARE),
    Property("stack", "shard_overlap", 0.14, 1.0, 0.02, 1.0, "share", _SHARE),
    Property("stack", "collective_sync_s", 1e-6, 1.0, 1e-8, 1e-4, "s/rank", _RANGE),
    Property("stack", "shard_messages", 7.0, 1.0, 1.0, 50.0, "messages/layer", _RANGE),
    Property("stack", "tensor_overlap", 0.095, 1.0, 0.01, 0.9, "share", _SHARE),
    Property("stack", "pipeline_exposed", 0.35, 1.0, 0.02, 6.0, "transfers/2", _RANGE),
    Property("stack", "straggler", 3e-3, 1.0, 1e-4, 0.1, "share", _RANGE),
    Property("shared_cores", "serial", 0.2, 1.0, 0.005, 0.9, "share", _JUDGED),
)
PROPERTIES: dict[tuple[str, str], Property] = {(p.kind, p.key): p for p in TABLE}
OF_PRESETS = tuple(pair for pair in PROPERTIES if pair not in (("gpu", "peak_flops"), ("shared_cores", "serial")))
"""Kinds whose properties presets have. The other two kinds belong to a processor that only runs describe."""
TIMES = ("latency", "latency_per_step")
"""Keys of links whose YAML values carry a unit of time."""
_LINK_DEFAULTS: dict[str, dict[str, float]] = {
    "efficiency": DEFAULT_EFFICIENCY,
    "latency": DEFAULT_LATENCY_S,
    "latency_per_step": DEFAULT_STEP_S,
    "half_rate_bytes": DEFAULT_HALF_BYTES,
    "shared_efficiency": {"intra": DEFAULT_SHARED, "inter": DEFAULT_SHARED},
}


@dataclass(frozen=True)
class Free:
    """A property that a fit may move. `start` is its value without the fit, `begin` where the fit begins: the
    same, unless that is 0 or out of bounds. `uncertainty` is the standard deviation of log(value / begin)."""

    name: str
    start: float
    uncertainty: float
    low: float = 1e-30
    high: float = 1e30
    unit: str = ""
    begin: float = 0.0

    def __post_init__(self) -> None:
        if not self.begin:
            object.__setattr__(self, "begin", min(max(self.start, self.low), self.high))


@dataclass(frozen=True)
class Common:
    """A factor that several properties share before anything is measured. `uncertainty` is the standard deviation
    of its logarithm, beside the properties' own. `exponents` has 1 for the keys of costs and -1 for those of
    efficiencies.
    """

    uncertainty: float
    exponents: Mapping[str, float]

    def of(self, properties: Sequence[Free]) -> list[float]:
        """Returns the exponent of each property, 0 for those that don't share the factor."""
        return [self.exponents.get(p.name.rpartition(" ")[2], 0.0) for p in properties]


DEVICE = Common(
    0.3,
    {
        "peak_flops": -1.0,
        "matrix_efficiency": -1.0,
        "attention_efficiency": -1.0,
        "hidden_bytes": 1.0,
        "sharded_bytes": 1.0,
        "vocabulary_bytes": 1.0,
        "optimizer_bytes": 1.0,
    },
)
"""A device at another clock, or software that is slower throughout, slows all kernels. GPUs of the same silicon
differ by up to 0.2 (`wirecost.prediction.interval`); the rest is judged."""
HOST = Common(0.5, {"host_forward_s": 1.0, "host_backward_s": 1.0, "host_vocabulary_s": 1.0})
"""A slower host launches everything more slowly. By judgement: hosts of GPUs differ by a factor of two."""


def split_name(name: str) -> tuple[str, str, str]:
    """Returns kind, preset and key of 'stack megatron-unfused hidden_bytes'.

    Raises:
        SpecError: for a kind, preset or key that can't be fitted, with those that can.
    """
    parts = name.split()
    if len(parts) != 3:
        raise SpecError(f"a property is written 'stack NAME PROPERTY' (or gpu, link), not '{name}'")
    kind, preset, key = parts
    kinds = sorted({of for of, _ in OF_PRESETS})
    if kind not in kinds:
        raise SpecError(one_of("kind of property", kind, kinds))
    if preset not in names(kind):
        raise SpecError(one_of(kind, preset, names(kind)))
    if (kind, key) not in OF_PRESETS:
        raise SpecError(one_of(f"{kind} property", key, [k for of, k in OF_PRESETS if of == kind]))
    return kind, preset, key


def free_preset(name: str, start: float | None = None) -> Free:
    """Returns a preset's property, to be fitted from `start`, or from the value that the preset has.

    Raises:
        SpecError: for a name that no property has.
    """
    kind, preset, key = split_name(name)
    return free(name, PROPERTIES[kind, key], start_of(load_spec(kind, preset), key) if start is None else start)


def free(name: str, entry: Property, start: float) -> Free:
    """Returns a property, to be fitted from `start`, or from the table's start where that is 0."""
    begin = min(max(start or entry.start, entry.low), entry.high)
    return Free(name, start, entry.uncertainty, entry.low, entry.high, entry.unit, begin)


def start_of(spec: GPU | Link | Stack | SharedCores, key: str) -> float:
    """Returns a property's value in a specification, or the default that the formulas take."""
    if isinstance(spec, Stack):
        return float(spec.value(key))
    given = getattr(spec, key)
    if isinstance(given, dict):
        return float(max(given.values()))
    if given is None:
        assert isinstance(spec, Link)
        inside = spec.name.startswith(("nvlink", "pcie", "xgmi", "shared-memory"))
        return _LINK_DEFAULTS[key]["intra" if inside else "inter"]
    return float(given)


@dataclass(frozen=True)
class Parts:
    """The specifications that a machine is built from, all of whose properties may be replaced."""

    gpu: GPU
    stack: Stack
    intra: Link
    inter: Link
    shared_cores: SharedCores | None = None

    def with_values(self, values: Mapping[str, float]) -> Parts:
        """Returns the parts with new values of their properties; other values are ignored."""
        changes = by_owner(values)
        gpu = changes.get(("gpu", self.gpu.name))
        stack = changes.get(("stack", self.stack.name))
        cores = changes.get(("shared_cores", self.gpu.name))
        intra, inter = (changes.get(("link", link.name)) for link in (self.intra, self.inter))
        return replace(
            self,
            gpu=self.gpu.model_copy(update=_gpu_update(self.gpu, gpu)) if gpu else self.gpu,
            stack=self.stack.with_values(stack) if stack else self.stack,
            intra=link_with(self.intra, intra) if intra else self.intra,
            inter=link_with(self.inter, inter) if inter else self.inter,
            shared_cores=self.shared_cores.model_copy(update=cores)
            if cores and self.shared_cores
            else self.shared_cores,
        )


DECISIVE = {"gpu": ("matrix_efficiency", "peak_flops"), "link": ("efficiency",)}
"""Properties that must be determined for a GPU or a link to count as measured; for a stack any
property suffices.
"""


def fitted_to(kind: str, keys: Iterable[str], text: str) -> dict[str, Any]:
    """Returns the `provenance` and `calibration` of a specification of which a fit determined these keys;
    nothing if the fit leaves what its provenance rests on as it was."""
    decisive = DECISIVE.get(kind)
    if decisive is None or any(key in decisive for key in keys):
        return {"provenance": Provenance.MEASURED, "calibration": text}
    return {}


def by_owner(values: Mapping[str, float]) -> dict[tuple[str, str], dict[str, float]]:
    """Returns values by key for each (kind, name) that owns some."""
    owners: dict[tuple[str, str], dict[str, float]] = {}
    for name, value in values.items():
        kind, _, rest = name.partition(" ")
        owner, _, key = rest.rpartition(" ")
        owners.setdefault((kind, owner), {})[key] = value
    return owners


def link_with(link: Link, values: Mapping[str, float]) -> Link:
    """Returns the link with values of its properties."""
    return link.model_copy(update={k: Seconds(v) if k in TIMES else v for k, v in values.items()})


def _gpu_update(gpu: GPU, values: Mapping[str, float]) -> dict[str, Any]:
    """Returns the update of a GPU. `peak_flops` is fitted for a processor that runs in one number format."""
    return {k: dict.fromkeys(gpu.peak_flops, v) if k == "peak_flops" else v for k, v in values.items()}


def unique(properties: Iterable[Free]) -> list[Free]:
    """Returns the properties without repetitions, in order."""
    return list({p.name: p for p in properties}.values())
