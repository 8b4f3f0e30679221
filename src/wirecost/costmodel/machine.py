"""Builds a machine for the formulas from the specifications of a GPU, its links and a software stack."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.costmodel.collectives import DEFAULT_SHARED, link_costs
from wirecost.costmodel.inputs import HostTimes, Machine
from wirecost.costmodel.nccl import tree_share
from wirecost.errors import SpecError
from wirecost.spec import GPU, Cluster, Link, MatrixPrecision, Precision, SharedCores, Stack
from wirecost.spec.efficiency import CollectiveEfficiency

SCALING_RATES = {
    MatrixPrecision.FP8: 1.0,
    MatrixPrecision.FP8_BLOCKWISE: 0.85,
    MatrixPrecision.MXFP8: 0.93,
    MatrixPrecision.FP4: 0.95,
    MatrixPrecision.NVFP4: 0.95,
}
"""Rate of products with a format's scales relative to that with one scale for each tensor, both as shares of the
peak of as many bits. MXFP8 and NVFP4: from published runs of one model in several formats (NeMo on Blackwell).
Blockwise FP8, of which no table has a row, by judgement: sums leave the matrix units every 128 numbers
(arXiv:2412.19437, section 3.3.2)."""


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
    if precision in gpu.peak_flops:
        return gpu.peak_flops[precision]
    if not _multiplies(gpu, precision):
        known = ", ".join([*sorted(gpu.peak_flops), *(each for each in SCALING_RATES if _multiplies(gpu, each))])
        raise SpecError(
            f"precision: {gpu.name} has no {precision} matrix products; it has {known}; a GPU written out in a "
            f"cluster states further ones, as peak_flops: {{{precision}: 1.0e+15}}"
        )
    return gpu.peak_flops[precision.unscaled]


def _multiplies(gpu: GPU, precision: MatrixPrecision) -> bool:
    """Returns whether a GPU multiplies a format whose peak it doesn't state. Matrix units read the scales of 16 or
    32 numbers since the generation that has FP4, and those of NVFP4 on NVIDIA's GPUs only."""
    if precision.unscaled is precision or precision.unscaled not in gpu.peak_flops:
        return False
    if precision is MatrixPrecision.FP8_BLOCKWISE:
        return True
    if precision is MatrixPrecision.NVFP4 and gpu.architecture.startswith("cdna"):
        return False
    return MatrixPrecision.FP4 in gpu.peak_flops


def _low_rate(products: MatrixPrecision, stack: Stack) -> float:
    """Returns the rate of products as a share of their peak, relative to that of formats of 16 bits."""
    return stack.layer.low_precision_efficiency * SCALING_RATES[products] if products.is_low else 1.0


def build(gpu: GPU, stack: Stack, node: Node, formats: Formats, cores: SharedCores | None = None) -> Machine:
    """Returns the machine of a GPU under a stack.

    Raises:
        SpecError: where the GPU has no such number format.
    """
    products, attention = formats.products, formats.attention
    low = products.is_low
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
        matrix_efficiency=gpu.matrix_efficiency * _low_rate(products, stack),
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
