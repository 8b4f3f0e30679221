"""The remarks on edges between hosts, and on the network's plugins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wirecost.ncclog.edges import gpudirect_of
from wirecost.ncclog.plugins import Wire, is_ipoib, is_virtual, provider_kind, wire_of
from wirecost.ncclog.result import GpuDirect, LogWarning, Transport, Where

if TYPE_CHECKING:
    from wirecost.ncclog.edges import JudgedEdge
    from wirecost.ncclog.state import LogState

_SHOW = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH"


def mixed(between: list[JudgedEdge], verdict: Transport) -> Iterator[LogWarning]:
    if verdict is not Transport.MIXED:
        return
    seen: dict[str, str] = {}
    for e in sorted(between, key=lambda e: (e.edge.sender, e.edge.receiver)):
        label = e.base.value
        if e.base is Transport.RDMA and e.edge.gdr is not None:
            label += " with GPUDirect" if e.edge.gdr else " without GPUDirect"
        seen.setdefault(label, f"rank {e.edge.sender} -> {e.edge.receiver}")
    found = "; ".join(f"{label} (for example {edge})" for label, edge in seen.items())
    yield LogWarning(
        "mixed_transports",
        f"edges between hosts do not all use the same transport: {found}. A collective goes at the pace of its "
        "slowest edge; make every host offer the same devices (compare `wirecost doctor` on each)",
    )
    bases: dict[int, set[object]] = {0: set(), 1: set()}
    for e in between:
        bases[min(e.edge.connection, 1)].add((e.base, e.edge.gdr if e.base is Transport.RDMA else None))
    if bases[0] and bases[1] and bases[0] != bases[1]:
        yield LogWarning(
            "sendrecv_differs",
            "connections for send and receive (index /1: pipeline stages, all-to-all) use another transport than "
            "those for collectives (index /0); judge pipeline and data parallel traffic apart",
        )


def sockets(state: LogState, edges: list[JudgedEdge]) -> Iterator[LogWarning]:
    sockets = [
        e for e in edges if e.base in (Transport.TCP, Transport.IPOIB) and wire_of(e.edge.network) is Wire.TCP
    ]
    if not sockets:
        return
    interfaces = sorted({e.interface for e in sockets if e.interface})
    if any(is_ipoib(i) for i in interfaces):
        names = ", ".join(i for i in interfaces if is_ipoib(i))
        yield LogWarning(
            "ipoib_not_rdma",
            f"the sockets run over {names}: that is TCP over IPoIB, not RDMA, though the wire is InfiniBand. "
            "To get RDMA, let NCCL see the InfiniBand device (/dev/infiniband in a container, libibverbs, "
            "NCCL_IB_DISABLE unset)",
        )
    virtual = [i for i in interfaces if is_virtual(i)]
    if virtual:
        yield LogWarning(
            "sockets_on_virtual_interface",
            f"sockets are striped over {', '.join(virtual)}, which no traffic between hosts should take: such a "
            "bridge is slow or leads nowhere. Name the real interface: NCCL_SOCKET_IFNAME=eth0 "
            "(yours), or exclude "
            f"these: NCCL_SOCKET_IFNAME=^{','.join(['lo', *virtual])}",
        )
    if "lo" in interfaces and any(e.where is not Where.INSIDE for e in sockets):
        yield LogWarning(
            "sockets_on_loopback",
            "sockets use lo: the ranks talk over the loopback of one machine, which says nothing about a network. "
            "Set NCCL_SOCKET_IFNAME to the network's interface",
        )
    if any(e.interface is None for e in sockets):
        yield LogWarning(
            "tcp_interface_unknown",
            "the log holds no 'NET/Socket : Using [0]...' line for these sockets, so their interface isn't known "
            f"and IPoIB can't be told from Ethernet; log with {_SHOW}",
        )
    yield from _why_sockets(state)


def _why_sockets(state: LogState) -> Iterator[LogWarning]:
    disabled = environment_of(state, "NCCL_IB_DISABLE")
    if "1" in disabled or "Socket" in environment_of(state, "NCCL_NET"):
        yield LogWarning(
            "ib_disabled",
            "RDMA was switched off by the environment (NCCL_IB_DISABLE=1 or NCCL_NET=Socket); unset it to use the "
            "InfiniBand or RoCE device",
        )
    elif state.no_ib_library:
        yield LogWarning(
            "no_ib_library",
            "NCCL could not open libibverbs, so it had no choice but sockets; install libibverbs1 "
            "(rdma-core) in the "
            "container or on the host",
        )
    elif state.no_ib_device:
        asked = " although NCCL_IB_DISABLE=0 is set, which only permits RDMA" if "0" in disabled else ""
        yield LogWarning(
            "ib_no_device",
            f"NCCL found no InfiniBand or RoCE device{asked}. In a container pass the devices in (docker: "
            "--device=/dev/infiniband --ulimit memlock=-1; kubernetes: the RDMA device plugin's resource); "
            "`wirecost doctor` inside it says what is missing",
        )


def gpudirect(state: LogState, between: list[JudgedEdge]) -> Iterator[LogWarning]:
    wired = [e for e in between if e.base in (Transport.RDMA, Transport.EFA)]
    if not wired:
        return
    match gpudirect_of(wired):
        case GpuDirect.NONE:
            yield LogWarning(
                "rdma_staged",
                f"{networks_of(wired)} without GPUDirect: data is staged through host memory on both ends. "
                + _why_staged(state),
            )
        case GpuDirect.RECEIVE_ONLY | GpuDirect.SEND_ONLY as one:
            does, not_ = ("receiving", "sending") if one is GpuDirect.RECEIVE_ONLY else ("sending", "receiving")
            code = "gdr_receive_only" if one is GpuDirect.RECEIVE_ONLY else "gdr_send_only"
            read = ""
            if one is GpuDirect.RECEIVE_ONLY:
                read = (
                    "NCCL_NET_GDR_READ=0 is set; unset it or set it to 1"
                    if "0" in environment_of(state, "NCCL_NET_GDR_READ")
                    else "NCCL does so on purpose for GPUs without NVLink; try NCCL_NET_GDR_READ=1 and measure"
                )
            yield LogWarning(
                code,
                f"GPUDirect on {does} only: the {not_} side is staged through host memory. "
                f"{read or _why_staged(state)}",
            )
        case GpuDirect.BOTH:
            sides = {e.edge.side for e in wired}
            if len(sides) == 1:
                other = "receiving" if "send" in sides else "sending"
                yield LogWarning(
                    "one_side_only",
                    f"the log shows only one end of the network edges; whether the {other} end uses GPUDirect too "
                    "is not in it. Collect the log of every rank (NCCL_DEBUG_FILE=nccl.%h.%p.log)",
                )


def _why_staged(state: LogState) -> str:
    refusals = " ".join(state.gdr_refusals)
    levels = environment_of(state, "NCCL_NET_GDR_LEVEL") | environment_of(state, "NCCL_IB_GDR_LEVEL")
    if "0" in environment_of(state, "NCCL_IB_CUDA_SUPPORT"):
        return "Why: NCCL_IB_CUDA_SUPPORT=0 is set; unset it"
    if levels & {"0", "LOC"}:
        return "Why: NCCL_NET_GDR_LEVEL switches it off; unset it, or set SYS to permit any distance"
    if (m := re.search(r"distance (\w+) >=? (\w+)", refusals)) is not None:
        return (
            f"Why: GPU and NIC are farther apart (distance {m[1]}) than the level allows ({m[2]}); use "
            f"a NIC on the "
            "GPU's PCIe switch, or raise NCCL_NET_GDR_LEVEL and measure"
        )
    if "no module" in refusals:
        return (
            "Why: NCCL says there is no peer-memory module; load nvidia-peermem (modprobe "
            "nvidia-peermem), or use the "
            "open GPU kernel driver with Linux 5.12 or later for DMA-BUF"
        )
    if refusals:
        return (
            "Why: NCCL found GPUDirect unsupported for the device; load nvidia-peermem (modprobe "
            "nvidia-peermem), or "
            "use the open GPU kernel driver with Linux 5.12 or later for DMA-BUF"
        )
    return f"The log doesn't say why; run with {_SHOW}, and `wirecost doctor` on the host"


def libfabric(every: list[JudgedEdge]) -> Iterator[LogWarning]:
    edges = [e for e in every if e.edge.kind == "NET" and wire_of(e.edge.network) is Wire.LIBFABRIC]
    providers = {e.process.provider for e in edges}
    named = sorted(p for p in providers if p is not None)
    not_efa = [p for p in named if provider_kind(p) == "tcp"]
    if not_efa:
        yield LogWarning(
            "efa_provider_not_efa",
            f"the libfabric plugin is loaded but its provider is '{not_efa[0]}', not efa: this is TCP. "
            f"Check that the "
            "instance has EFA interfaces, that the container sees /dev/infiniband, and set FI_PROVIDER=efa",
        )
    unknown = [p for p in named if provider_kind(p) is None]
    if unknown:
        yield LogWarning(
            "libfabric_provider_unknown",
            f"the libfabric provider '{unknown[0]}' is not one whose wire is known here",
        )
    if edges and not named:
        yield LogWarning(
            "efa_provider_unknown",
            "the log holds no 'NET/OFI Selected provider is ...' line; the plugin's name suggests EFA, and a tcp "
            f"provider would look the same. Log with {_SHOW}",
        )


def environment_of(state: LogState, name: str) -> set[str]:
    return {p.environment[name] for p in state.processes.values() if name in p.environment}


def networks_of(edges: list[JudgedEdge]) -> str:
    return ", ".join(sorted({f"{e.edge.kind}/{e.edge.network}" for e in edges}))
