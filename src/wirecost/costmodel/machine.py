"""Builds a machine for the formulas from the specifications of a GPU, its links and a software stack."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.costmodel.collectives import DEFAULT_SHARED, link_costs
from wirecost.costmodel.inputs import HostTimes, Machine
from wirecost.costmodel.nccl import tree_share
from wirecost.errors import SpecError
from wirecost.spec import GPU, Cluster, Link, MatrixPrecision, Precision, SharedCores, Stack
from wirecost.spec.efficiency import CollectiveEfficiency

_LOW = (MatrixPrecision.FP8, MatrixPrecision.FP4)


@dataclass(frozen=True)
class Node:
    """A node's GPUs and its links. `node_Bps` overrides what `nics_per_node` NICs carry together; `intra_Bps` the
    nominal rate of the link inside."""

    gpus: int
    intra: Link
    inter: Link
    nics: int = 1
    node_Bps: float | None = None
    intra_Bps: float | None = None
    curves: tuple[CollectiveEfficiency, ...] = ()


@dataclass(frozen=True)
class Formats:
    """Number formats of the layers' products, and of attention and the vocabulary layer (None: as the products',
    BF16 where those are in FP8 or FP4)."""

    products: MatrixPrecision = MatrixPrecision.BF16
    attention: MatrixPrecision | None = None


def peak_flops(gpu: GPU, precision: MatrixPrecision) -> float:
    """Returns the GPU's dense peak in that format.

    Raises:
        SpecError: where the GPU has no such format, with those it has.
    """
    if precision not in gpu.peak_flops:
        known = ", ".join(sorted(gpu.peak_flops))
        raise SpecError(f"precision: {gpu.name} has no {precision} matrix products; it has {known}")
    return gpu.peak_flops[precision]


def build(gpu: GPU, stack: Stack, node: Node, formats: Formats, cores: SharedCores | None = None) -> Machine:
    """Returns the machine of a GPU under a stack.

    Raises:
        SpecError: where the GPU has no such number format.
    """
    products, attention = formats.products, formats.attention
    low = products in _LOW
    if attention is None:
        attention = MatrixPrecision.BF16 if low else products
    width = 4.0 if products is MatrixPrecision.FP32 else 2.0
    intra, inter = node.intra, node.inter
    nics = float(node.nics)
    if node.node_Bps is not None:
        nics = max(1.0, round(node.node_Bps * 8 / inter.rate))
    return Machine(
        peak_flops=peak_flops(gpu, products),
        attention_peak_flops=peak_flops(gpu, attention),
        memory_Bps=gpu.memory_bandwidth_Bps,
        memory_bytes=float(gpu.memory_bytes),
        matrix_efficiency=gpu.matrix_efficiency * (stack.layer.low_precision_efficiency if low else 1.0),
        matrix_traffic=gpu.matrix_traffic,
        memory_efficiency=gpu.memory_efficiency,
        power_throttle=gpu.power_throttle,
        attention_efficiency=gpu.attention_efficiency if stack.attention.kind == "fused" else 1.0,
        gpus_per_node=float(node.gpus),
        intra_Bps=intra.rate / 8 if node.intra_Bps is None else node.intra_Bps,
        intra=link_costs(intra, "intra"),
        node_Bps=node.node_Bps or inter.rate / 8 * node.nics,
        nics_per_node=nics,
        inter=link_costs(inter, "inter"),
        inter_shared=DEFAULT_SHARED if inter.shared_efficiency is None else float(inter.shared_efficiency),
        two_node_tree=tree_share(inter.interface_rate or inter.rate, gpu.architecture),
        stack=stack,
        host=HostTimes.of(stack.host),
        once_s=stack.iteration.once_s,
        element_bytes=width,
        product_bytes=1.0 if low else 2.0,
        activation_scale=width / 2,
        gpu_name=gpu.name,
        shared_cores=cores,
        curves=node.curves,
    )


def machine_of(
    cluster: Cluster, stack: Stack, precision: Precision, matrix_precision: MatrixPrecision | None = None
) -> Machine:
    """Returns the machine of a cluster under a stack that trains in `precision`."""
    node = Node(
        gpus=cluster.gpus_per_node,
        intra=cluster.intra_node,
        inter=cluster.inter_node,
        nics=cluster.nics_per_node,
        curves=cluster.network_efficiency.collectives if cluster.network_efficiency else (),
    )
    formats = Formats(matrix_precision or MatrixPrecision(precision), MatrixPrecision(precision))
    return build(cluster.accelerator, stack, node, formats, cluster.shared_cores)
