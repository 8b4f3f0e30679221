"""Rates of the links between GPUs and between hosts: from a cluster's description, a GPU's name or the machine."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wirecost.collectives.request import Backend, BenchRequest
from wirecost.spec.cluster import Cluster

if TYPE_CHECKING:
    from wirecost.doctor.gpus import Gpu
    from wirecost.doctor.machine import Machine

_NVLINK_Bps = 25e9
"""One NVLink of generations 2 to 4 in one direction; of generation 5 it is twice that."""
_LANE_Bps = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""One PCI Express lane in one direction, by generation (PCI-SIG; encoding taken off, headers not)."""


@dataclass(frozen=True)
class Hardware:
    """Rates of links in one direction, in bytes per second; None is unknown.

    Attributes:
        source: the source of the figures, for people.
        architecture: the GPUs' architecture, for NCCL's own estimate.
        inside: name of the link between the GPUs of a node ("NVLink 4"); `gpu_Bps` is its rate for each GPU.
        switched: whether each GPU reaches every other one at that rate.
        nics_per_node, nic_Bps: number and rate of the NICs between nodes.
    """

    source: str
    architecture: str = ""
    inside: str = ""
    gpu_Bps: float | None = None
    switched: bool = False
    gpus_per_node: int | None = None
    nics_per_node: int | None = None
    nic_Bps: float | None = None
    between: str = ""
    emulated: bool = False


def of_cluster(cluster: Cluster, source: str) -> Hardware:
    """Returns the links that a cluster's description states."""
    inside, between = cluster.intra_node, cluster.inter_node
    accelerator = cluster.accelerator
    return Hardware(
        source=source,
        architecture=accelerator.architecture,
        inside=_spelled(inside.name),
        gpu_Bps=inside.rate / 8,
        switched=inside.name.startswith("nvlink") and cluster.gpus_per_node > 4,
        gpus_per_node=cluster.gpus_per_node,
        nics_per_node=cluster.nics_per_node,
        nic_Bps=(between.interface_rate or between.rate) / 8,
        between=between.name,
    )


def _spelled(link: str) -> str:
    """Returns a link preset's display name: "nvlink4" becomes NVLink 4."""
    match = re.fullmatch(r"(nvlink|pcie|xgmi)(\d)", link)
    return f"{dict(nvlink='NVLink', pcie='PCIe', xgmi='xGMI')[match[1]]} {match[2]}" if match else link


# (the name that the driver gives, architecture, link, GB/s in one direction, whether through switches), by the
# datasheets of NVIDIA (V100, A100, H100, H200, B200, GB200) and AMD (MI300X, MI325X). Names that several boards
# share are left out.
_BY_NAME = (
    (r"V100-SXM[23]", "volta", "NVLink 2", 150, False),
    (r"A100-SXM|A100 SXM", "ampere", "NVLink 3", 300, True),
    (r"H100 80GB HBM3|H100 SXM|H100-SXM", "hopper", "NVLink 4", 450, True),
    (r"H200(?! NVL)\b|H20(?!0)\b", "hopper", "NVLink 4", 450, True),
    (r"\bB[23]00\b|GB[23]00", "blackwell", "NVLink 5", 900, True),
    (r"MI300X|MI325X", "cdna3", "xGMI 3", 448, False),
)


def of_gpu_name(name: str | None) -> Hardware | None:
    """Returns the links between a node's GPUs by the GPU name that a benchmark printed; None for other names."""
    if not name:
        return None
    for pattern, architecture, link, rate, switched in _BY_NAME:
        if re.search(pattern, name):
            return Hardware(f"GPU {name}", architecture, link, rate * 1e9, switched)
    return None


def of_request(request: BenchRequest) -> Hardware | None:
    """Returns the links between the ranks of a benchmark on this machine; None for processors of one host."""
    shaped = request.network.emulate
    if request.hosts > 1 and request.launcher is None and shaped is not None:
        rate = shaped.rate
        name = f"the emulated link of {request.network.name}"
        return Hardware(
            "emulated", nics_per_node=1, nic_Bps=rate / 8 if rate else None, between=name, emulated=True
        )
    if request.backend is not Backend.NCCL and request.hosts == 1:
        return None
    return of_this_machine()


def of_this_machine(machine: Machine | None = None) -> Hardware:
    """Returns the links that a machine (None: this one) reports: its GPUs' NVLinks and PCIe, its RDMA ports or
    interfaces.

    NVLinks are unknown for a GPU whose name doesn't determine the rate of a link.
    """
    from wirecost.doctor.gpus import gpus_of
    from wirecost.doctor.machine import Machine
    from wirecost.doctor.nics import nics_of
    from wirecost.doctor.rdma import ports_of

    machine = machine or Machine()
    cards = gpus_of(machine)
    links = Hardware("this machine", gpus_per_node=len(cards) or None)
    if cards:
        links = _inside(links, cards[0])
    ports = [p for p in ports_of(machine) if p.active and p.rate_bps]
    if ports:
        slowest = min(p.rate_bps or 0.0 for p in ports)
        return replace(links, nics_per_node=len(ports), nic_Bps=slowest / 8, between="RDMA ports")
    nics = [n for n in nics_of(machine) if n.up and n.physical and n.speed_bps]
    if nics:
        fastest = max(nics, key=lambda n: n.speed_bps or 0.0)
        return replace(links, nics_per_node=1, nic_Bps=(fastest.speed_bps or 0.0) / 8, between=fastest.name)
    return links


def _inside(links: Hardware, card: Gpu) -> Hardware:
    known = of_gpu_name(card.name)
    if card.nvlinks:
        if known is None:
            return links
        each = _NVLINK_Bps * (2 if known.architecture == "blackwell" else 1)
        return replace(
            links,
            architecture=known.architecture,
            inside=f"{card.nvlinks} NVLinks",
            gpu_Bps=card.nvlinks * each,
            switched=known.switched,
        )
    if card.pcie_width and card.pcie_generation_most in _LANE_Bps:
        rate = card.pcie_width * _LANE_Bps[card.pcie_generation_most]
        return replace(links, inside=f"PCIe {card.pcie_generation_most} x{card.pcie_width}", gpu_Bps=rate)
    return links
