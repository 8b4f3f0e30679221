"""The diagnostics on edges between hosts and on network plugins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.ncclog.edges import gpudirect_of, networks_of
from wirecost.ncclog.plugins import Wire, is_ipoib, is_virtual, provider_kind, wire_of
from wirecost.ncclog.result import GpuDirect, Transport, Where
from wirecost.ncclog.state import environment_of

if TYPE_CHECKING:
    from wirecost.ncclog.edges import JudgedEdge
    from wirecost.ncclog.state import LogState

_MORE_LOG = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH"


def mixed(between: list[JudgedEdge], verdict: Transport) -> Iterator[Diagnostic]:
    """Yields a diagnostic if the edges between hosts use several transports."""
    if verdict is not Transport.MIXED:
        return
    examples: dict[str, str] = {}
    for e in sorted(between, key=lambda e: (e.edge.sender, e.edge.receiver)):
        label = e.base.value
        if e.base is Transport.RDMA and e.edge.gdr is not None:
            label += " with GPUDirect" if e.edge.gdr else " without GPUDirect"
        examples.setdefault(label, f"rank {e.edge.sender} -> {e.edge.receiver}")
    listed = "; ".join(f"{label} (for example {edge})" for label, edge in examples.items())
    yield diagnostic(
        "mixed_transports",
        f"edges between hosts do not all use the same transport: {listed}. A collective goes at the pace of its "
        "slowest edge",
    )
    bases: dict[int, set[object]] = {0: set(), 1: set()}
    for e in between:
        bases[min(e.edge.connection, 1)].add((e.base, e.edge.gdr if e.base is Transport.RDMA else None))
    if bases[0] and bases[1] and bases[0] != bases[1]:
        yield diagnostic(
            "sendrecv_differs",
            "connections for send and receive (index /1: pipeline stages, all-to-all) use another transport than "
            "those for collectives (index /0)",
        )


def sockets(state: LogState, edges: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields diagnostics on the sockets in use and the reason for them."""
    sockets = [
        e for e in edges if e.base in (Transport.TCP, Transport.IPOIB) and wire_of(e.edge.network) is Wire.TCP
    ]
    if not sockets:
        return
    interfaces = sorted({e.interface for e in sockets if e.interface})
    if any(is_ipoib(i) for i in interfaces):
        names = ", ".join(i for i in interfaces if is_ipoib(i))
        yield diagnostic(
            "ipoib_not_rdma",
            f"the sockets run over {names}: that is TCP over IPoIB, not RDMA, though the wire is InfiniBand",
        )
    virtual = [i for i in interfaces if is_virtual(i)]
    if virtual:
        yield diagnostic(
            "sockets_on_virtual_interface",
            f"sockets are striped over {', '.join(virtual)}, which traffic between hosts should not use: such a "
            "bridge is slow or doesn't reach the other hosts",
            remedy="name the real interface: NCCL_SOCKET_IFNAME=eth0 (yours), or exclude these: "
            f"NCCL_SOCKET_IFNAME=^{','.join(['lo', *virtual])}",
        )
    if "lo" in interfaces and any(e.where is not Where.INSIDE for e in sockets):
        yield diagnostic(
            "sockets_on_loopback",
            "sockets use lo: the ranks communicate over the loopback interface of one machine; the log gives no "
            "information about a network",
        )
    if any(e.interface is None for e in sockets):
        yield diagnostic(
            "tcp_interface_unknown",
            "the log holds no 'NET/Socket : Using [0]...' line for these sockets, so their interface isn't known "
            "and may be Ethernet or IPoIB",
        )
    yield from _why_sockets(state)


def _why_sockets(state: LogState) -> Iterator[Diagnostic]:
    """Yields the reason why NCCL chose sockets, if the log contains it."""
    disabled = environment_of(state, "NCCL_IB_DISABLE")
    if "1" in disabled or "Socket" in environment_of(state, "NCCL_NET"):
        yield diagnostic(
            "ib_disabled", "RDMA was switched off by the environment (NCCL_IB_DISABLE=1 or NCCL_NET=Socket)"
        )
    elif state.no_ib_library:
        yield diagnostic("no_ib_library", "NCCL could not open libibverbs, so it used sockets")
    elif state.no_ib_device:
        permitted = " although NCCL_IB_DISABLE=0 is set, which only permits RDMA" if "0" in disabled else ""
        yield diagnostic("ib_no_device", f"NCCL found no InfiniBand or RoCE device{permitted}")


def gpudirect(state: LogState, between: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields a diagnostic if ends of the network edges are staged through host memory."""
    wired = [e for e in between if e.base in (Transport.RDMA, Transport.EFA)]
    if not wired:
        return
    why, remedy = _why_staged(state)
    match gpudirect_of(wired):
        case GpuDirect.NONE:
            yield diagnostic(
                "rdma_staged",
                f"{networks_of(wired)} without GPUDirect: data is staged through host memory on both ends; {why}",
                remedy=remedy,
            )
        case GpuDirect.RECEIVE_ONLY:
            if "0" in environment_of(state, "NCCL_NET_GDR_READ"):
                why, remedy = "NCCL_NET_GDR_READ=0 is set", "unset NCCL_NET_GDR_READ or set it to 1"
            else:
                why, remedy = "NCCL does so on purpose for GPUs without NVLink", None
            yield diagnostic(
                "gdr_receive_only",
                f"GPUDirect on receiving only: the sending side is staged through host memory; {why}",
                remedy=remedy,
            )
        case GpuDirect.SEND_ONLY:
            yield diagnostic(
                "gdr_send_only",
                f"GPUDirect on sending only: the receiving side is staged through host memory; {why}",
                remedy=remedy,
            )
        case GpuDirect.BOTH:
            sides = {e.edge.side for e in wired}
            if len(sides) == 1:
                other = "receiving" if "send" in sides else "sending"
                yield diagnostic(
                    "one_side_only",
                    f"the log shows only one end of the network edges; whether the {other} end uses GPUDirect "
                    "too is not in it",
                )


def _why_staged(state: LogState) -> tuple[str, str]:
    """Returns the reason why GPUDirect isn't used, and the remedy."""
    refusals = " ".join(state.gdr_refusals)
    levels = environment_of(state, "NCCL_NET_GDR_LEVEL") | environment_of(state, "NCCL_IB_GDR_LEVEL")
    module = (
        "load nvidia-peermem (modprobe nvidia-peermem), or use the open GPU kernel driver with Linux 5.12 or "
        "later for DMA-BUF"
    )
    if "0" in environment_of(state, "NCCL_IB_CUDA_SUPPORT"):
        return "NCCL_IB_CUDA_SUPPORT=0 is set", "unset NCCL_IB_CUDA_SUPPORT"
    if levels & {"0", "LOC"}:
        return "NCCL_NET_GDR_LEVEL switches it off", "unset NCCL_NET_GDR_LEVEL, or set SYS to permit any distance"
    if (m := re.search(r"distance (\w+) >=? (\w+)", refusals)) is not None:
        return (
            f"GPU and NIC are farther apart (distance {m[1]}) than the level allows ({m[2]})",
            "use a NIC on the GPU's PCIe switch, or raise NCCL_NET_GDR_LEVEL and measure",
        )
    if "no module" in refusals:
        return "NCCL reports that there is no peer-memory module", module
    if refusals:
        return "NCCL found GPUDirect unsupported for the device", module
    return "the log gives no reason", f"run with {_MORE_LOG}, and `wirecost doctor` on the host"


def libfabric(every: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields diagnostics on the libfabric provider."""
    edges = [e for e in every if e.edge.kind == "NET" and wire_of(e.edge.network) is Wire.LIBFABRIC]
    providers = {e.process.provider for e in edges}
    named = sorted(p for p in providers if p is not None)
    not_efa = [p for p in named if provider_kind(p) == "tcp"]
    if not_efa:
        yield diagnostic(
            "efa_provider_not_efa",
            f"the libfabric plugin is loaded but its provider is '{not_efa[0]}', not efa: this is TCP",
        )
    unknown = [p for p in named if provider_kind(p) is None]
    if unknown:
        yield diagnostic(
            "libfabric_provider_unknown",
            f"the libfabric provider '{unknown[0]}' is not one whose wire is known here",
        )
    if edges and not named:
        yield diagnostic(
            "efa_provider_unknown",
            "the log holds no 'NET/OFI Selected provider is ...' line; the plugin's name suggests EFA, and a tcp "
            "provider would look the same",
        )
