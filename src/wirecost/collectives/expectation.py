"""Compares a table's bandwidth with the links' bandwidth and with the expectation of NCCL's own model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from wirecost.collectives.hardware import Hardware
from wirecost.collectives.nccl_estimate import Estimate, estimate
from wirecost.collectives.operations import BARRIER
from wirecost.collectives.result import Row
from wirecost.units import format_size_bytes

FAR_BELOW = 0.7
"""Share of NCCL's expectation (of the links' bandwidth if NCCL has none) below which a result is reported as too
slow.
"""
LARGE_BYTES = 128 << 20
"""Least message size of a comparison. Smaller messages may not saturate fast links."""
RISING = 1.1
"""Relative growth from one size to the next from which on the bandwidth has not reached its limit."""
NEAR = 0.15
"""Relative distance within which a bandwidth matches that of a smaller number of NICs."""
SOCKETS = 0.25
"""Largest share of RDMA's rate that sockets reach on a fast network."""
NAME_IT = "name the hardware: --hardware dgx-h100, or a YAML file"
PAIRS = ("send_recv", "send_recv_bidirectional", "gather", "scatter")
"""Operations in which only one rank sends or only one rank receives."""


class LinkShare(BaseModel):
    """A table's best bus bandwidth and the bandwidth of its links in one direction; None if unknown.

    `expected_Bps` is the expectation of NCCL's own model for `algorithm`. `cause` is set if the bandwidth is far
    below it. `unknown` names missing information.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    collective: str
    ranks: int
    groups: int
    size_bytes: int
    busbw_Bps: float
    links: str | None = None
    links_Bps: float | None = None
    share: float | None = None
    algorithm: str | None = None
    expected_Bps: float | None = None
    expected_share: float | None = None
    source: str | None = None
    cause: str | None = None
    unknown: str | None = None


@dataclass(frozen=True)
class Place:
    """The placement of a group's ranks: the number of its hosts and of the groups that share each host."""

    ranks: int
    hosts: int
    sharing: int

    @property
    def per_host(self) -> float:
        return self.ranks / self.hosts


def place_of(
    ranks: int, groups: int, hosts: int | None, span: int | None, gpus_per_node: int | None
) -> Place | None:
    """Returns the placement of the ranks of one of several equal groups; None if it is unknown.

    Args:
        hosts: machines that all groups together are on.
        span: machines that one group is on; None if unknown.
        gpus_per_node: replaces an unknown `hosts`, on the assumption that every GPU of each node is used.
    """
    if hosts is None and gpus_per_node is not None:
        hosts = math.ceil(ranks * groups / gpus_per_node)
    if hosts is None:
        return None
    if span is None:
        if groups > 1 and hosts > 1:
            return None
        span = hosts
    span = min(span, ranks)
    return Place(ranks, span, max(1, round(groups * span / hosts)))


def compare_with_links(
    rows: Sequence[Row],
    hardware: Hardware | None,
    *,
    hosts: int | None = None,
    groups: int = 1,
    span: int | None = None,
) -> LinkShare | None:
    """Compares the best row of a table with its links; None for a table without bandwidths.

    Args:
        hosts: machines that all ranks are on; None assumes that all GPUs of each node are used.
        groups: process groups that ran at once.
        span: machines that each of these groups is on.
    """
    usable = [r for r in rows if r.busbw_Bps and r.collective != BARRIER and not r.unshaped]
    if not usable:
        return None
    best = max(usable, key=lambda r: r.busbw_Bps or 0.0)
    busbw = best.busbw_Bps or 0.0
    base = LinkShare(
        collective=best.collective, ranks=best.ranks, groups=groups, size_bytes=best.size_bytes, busbw_Bps=busbw
    )
    if hardware is None:
        return base.model_copy(update={"unknown": f"what the links give isn't known; {NAME_IT}"})
    place = place_of(best.ranks, groups, hosts, span, hardware.gpus_per_node)
    if place is None:
        return base.model_copy(update={"unknown": f"how many hosts the ranks were on isn't known; {NAME_IT}"})
    limit = _limit(best.collective, place, hardware)
    if limit is None:
        what = "NICs" if place.hosts > 1 else "GPUs' links"
        return base.model_copy(update={"unknown": f"what the {what} give isn't known; {NAME_IT}"})
    links, links_Bps = limit
    source = hardware.source
    if hosts is None:
        source += (
            f"; {place.hosts} {'nodes' if place.hosts > 1 else 'node'} of {hardware.gpus_per_node} GPUs assumed"
        )
    expected = _expected(best.collective, place, hardware)
    share = busbw / links_Bps
    against = busbw / expected.busbw_Bps if expected is not None else share
    low = against < FAR_BELOW and not hardware.emulated
    return base.model_copy(
        update={
            "links": links,
            "links_Bps": links_Bps,
            "share": share,
            "algorithm": expected.algorithm if expected is not None else None,
            "expected_Bps": expected.busbw_Bps if expected is not None else None,
            "expected_share": against if expected is not None else None,
            "source": source,
            "cause": _cause(place, hardware, busbw, usable) if low else None,
        }
    )


def _nics(place: Place, hardware: Hardware) -> int:
    """Returns the number of NICs that a node's ranks use: those near their GPUs."""
    nics = hardware.nics_per_node or 1
    gpus = hardware.gpus_per_node
    used = place.per_host * place.sharing
    return nics if gpus is None or used >= gpus else max(1, math.ceil(nics * used / gpus))


def _limit(collective: str, place: Place, hardware: Hardware) -> tuple[str, float] | None:
    """Returns (the links' name, the bus bandwidth that they give one group in one direction); None if unknown.

    All-reduce, all-gather, reduce-scatter, broadcast and reduce cross a node's NICs once on rings, so that the bus
    bandwidth is at most the NICs' rate (nccl-tests, doc/PERFORMANCE.md). In an all-to-all every rank's own data
    cross, so that all of a node's ranks share its NICs.
    """
    if place.hosts == 1:
        return (f"{hardware.inside} gives each GPU", hardware.gpu_Bps) if hardware.gpu_Bps is not None else None
    if hardware.nic_Bps is None:
        return None
    nics = _nics(place, hardware)
    rate = nics * hardware.nic_Bps / place.sharing
    words = f"{nics} x {hardware.between} give each node" if nics > 1 else f"{hardware.between} gives each node"
    if place.sharing > 1:
        words += f", for each of {place.sharing} groups"
    if collective == "all_to_all":
        outside = (place.ranks - place.per_host) / (place.ranks - 1)
        rate /= place.per_host * outside
        if place.per_host > 1:
            words += f", shared by its {place.per_host:g} ranks"
    elif collective in PAIRS and nics > 1:
        return None  # it is unknown which NIC a pair uses
    return words, rate


def _expected(collective: str, place: Place, hardware: Hardware) -> Estimate | None:
    """Returns NCCL's expectation; None unless its model covers the placement: one group of whole nodes' GPUs on
    NVLink.
    """
    if hardware.gpu_Bps is None or "NVLink" not in hardware.inside or place.sharing > 1:
        return None
    if place.per_host != int(place.per_host) or place.per_host > 8:
        return None
    return estimate(
        collective,
        architecture=hardware.architecture,
        nvlink_Bps=hardware.gpu_Bps,
        ranks=place.ranks,
        nodes=place.hosts,
        nics=_nics(place, hardware),
        nic_Bps=hardware.nic_Bps,
        switched=hardware.switched,
    )


def _rising(rows: Sequence[Row]) -> bool:
    """Returns whether messages larger than those measured would probably reach a higher bandwidth."""
    best: dict[int, float] = {}
    for row in rows:
        best[row.size_bytes] = max(best.get(row.size_bytes, 0.0), row.busbw_Bps or 0.0)
    sizes = sorted(best)
    if sizes[-1] >= LARGE_BYTES:
        return False
    return len(sizes) == 1 or best[sizes[-1]] > RISING * best[sizes[-2]]


def _cause(place: Place, hardware: Hardware, busbw: float, rows: Sequence[Row]) -> str:
    """Returns the usual cause of a bandwidth far below the expectation, and how to check it."""
    if _rising(rows):
        size = format_size_bytes(max(r.size_bytes for r in rows))
        return f"the largest message is {size}, too small to fill such links: measure up to 1 GiB or more"
    if place.hosts > 1:
        return _cause_between_hosts(place, hardware, busbw)
    if "PCIe" in hardware.inside:
        return (
            "GPUs on different CPU sockets, ACS or the IOMMU (no peer access, so through host memory): "
            "`nvidia-smi topo -m`, `wirecost doctor`"
        )
    return (
        "peer access is off (NCCL_P2P_DISABLE, a container for each GPU) or NVLinks are down: "
        "`nvidia-smi nvlink --status`, and `wirecost transport` on the run's NCCL log"
    )


def _cause_between_hosts(place: Place, hardware: Hardware, busbw: float) -> str:
    nics = _nics(place, hardware)
    nic = hardware.nic_Bps or math.inf
    total = busbw * place.sharing
    for used in range(1, nics // 2 + 1):
        if abs(total / (used * nic) - 1) < NEAR:
            some = f"{used} of {nics} NICs give" if used > 1 else f"1 of {nics} NICs gives"
            return (
                f"as much as {some}: NCCL_IB_HCA names only some, or the others are down or not in the container; "
                "`wirecost doctor` lists the ports"
            )
    if total < SOCKETS * nics * nic:
        return (
            "as much as sockets give, if NCCL uses TCP and not RDMA; "
            "`wirecost transport --expect rdma-gdr` on its log tells"
        )
    return (
        "RDMA without GPUDirect, a NIC far from its GPU (PCIe distance), ACS or the IOMMU, or a port below its "
        "rate: `wirecost transport` on the log, `wirecost doctor` on each host"
    )
