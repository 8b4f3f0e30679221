"""A machine for the formulas: a GPU, its links and a software stack from specifications or by name."""

from __future__ import annotations

from functools import lru_cache

from wirecost.errors import SpecError
from wirecost.model.collectives import link_numbers
from wirecost.model.inputs import Machine
from wirecost.model.nccl import tree_share
from wirecost.spec import GPU, Cluster, Cores, Link, MatrixPrecision, Precision, Stack, validate
from wirecost.spec.efficiency import CollectiveEfficiency
from wirecost.spec.presets import named, names


@lru_cache
def stack_named(name: str) -> Stack:
    """A stack preset. Raises SpecError for an unknown name, listing those that are there."""
    try:
        return validate(Stack, named("stack", name), f"stack {name}")
    except ValueError as error:
        raise SpecError(str(error)) from error


@lru_cache
def pick_stack(framework: str, architecture: str, sharding: str = "") -> Stack:
    """The stack preset whose match fits most specifically; `generic` where none does."""
    best, score = "generic", (0, 0)
    for name in names("stack"):
        match = named("stack", name).get("match") or {}
        wanted = [
            any(part in framework.lower() for part in match.get("framework", ())),
            architecture in match.get("architecture", ()),
            any(part in sharding.lower() for part in match.get("sharding", ())),
        ]
        asked = [bool(match.get(key)) for key in ("framework", "architecture", "sharding")]
        fits = any(asked) and all(hit for hit, ask in zip(wanted, asked, strict=True) if ask)
        longest = max((len(part) for part in match.get("framework", ()) if part in framework.lower()), default=0)
        if fits and (sum(asked), longest) > score:
            best, score = name, (sum(asked), longest)
    return stack_named(best)


def peak_flops(gpu: GPU, precision: MatrixPrecision) -> float:
    """The GPU's dense peak in that format.

    Raises:
        SpecError: where the GPU has no such format, with those it has.
    """
    if precision not in gpu.peak_flops:
        known = ", ".join(sorted(gpu.peak_flops))
        raise SpecError(f"precision: {gpu.name} has no {precision} matrix products; it has {known}")
    return gpu.peak_flops[precision]


def build(
    gpu: GPU,
    stack: Stack,
    *,
    intra: Link,
    inter: Link,
    gpus_per_node: int,
    node_Bps: float | None = None,
    nics_per_node: int = 1,
    precision: MatrixPrecision = MatrixPrecision.BF16,
    attention_precision: MatrixPrecision | None = None,
    cores: Cores | None = None,
    curves: tuple[CollectiveEfficiency, ...] = (),
) -> Machine:
    """A machine. `node_Bps` overrides what `nics_per_node` NICs of the inter-node link carry together."""
    if attention_precision is None:
        low = precision in (MatrixPrecision.FP8, MatrixPrecision.FP4)
        attention_precision = MatrixPrecision.BF16 if low else precision
    width = 4.0 if precision is MatrixPrecision.FP32 else 2.0
    return Machine(
        peak_flops=peak_flops(gpu, precision),
        attention_peak_flops=peak_flops(gpu, attention_precision),
        memory_Bps=gpu.memory_bandwidth_Bps,
        memory_bytes=float(gpu.memory_bytes),
        matrix_efficiency=gpu.matrix_efficiency
        * (
            stack.low_precision_efficiency
            if width == 2.0 and precision in (MatrixPrecision.FP8, MatrixPrecision.FP4)
            else 1.0
        ),
        matrix_traffic=gpu.matrix_traffic,
        memory_efficiency=gpu.memory_efficiency,
        power_throttle=gpu.power_throttle,
        attention_efficiency=gpu.attention_efficiency if stack.attention == "fused" else 1.0,
        gpus_per_node=float(gpus_per_node),
        intra_Bps=intra.rate / 8,
        node_Bps=node_Bps or inter.rate / 8 * nics_per_node,
        nics_per_node=float(nics_per_node) if node_Bps is None else max(1.0, round(node_Bps * 8 / inter.rate)),
        two_node_tree=tree_share(inter.interface_rate or inter.rate, gpu.architecture),
        stack=stack,
        element_bytes=width,
        activation_scale=width / 2,
        gpu_name=gpu.name,
        cores=cores,
        curves=curves,
        **link_numbers(intra, "intra"),
        **link_numbers(inter, "inter"),
    )


def machine_of(
    cluster: Cluster, stack: Stack, precision: Precision, matrix_precision: MatrixPrecision | None = None
) -> Machine:
    """A cluster under a stack, training in `precision`."""
    return build(
        cluster.accelerator,
        stack,
        intra=cluster.intra_node,
        inter=cluster.inter_node,
        gpus_per_node=cluster.gpus_per_node,
        nics_per_node=cluster.nics_per_node,
        precision=matrix_precision or MatrixPrecision(precision),
        attention_precision=MatrixPrecision(precision),
        cores=cluster.cores,
        curves=cluster.network_efficiency.collectives if cluster.network_efficiency else (),
    )
