"""The remarks on a verdict: each is a conclusion that people draw wrongly from an NCCL log, with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wirecost.fabric.ncclog.communicators import Communicator
from wirecost.fabric.ncclog.plugins import Wire, is_ipoib, is_virtual, provider_kind, wire_of
from wirecost.fabric.ncclog.result import CommunicatorVerdict, GpuDirect, LogWarning, Transport, Where

if TYPE_CHECKING:
    from wirecost.fabric.ncclog.judge import JudgedEdge
    from wirecost.fabric.ncclog.reader import LogReader
    from wirecost.fabric.ncclog.state import LogState

_SHOW = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH"


def warnings_of(
    reader: LogReader,
    judged: list[tuple[Communicator, list[JudgedEdge]]],
    verdicts: tuple[CommunicatorVerdict, ...],
    verdict: Transport,
) -> Iterator[LogWarning]:
    """All remarks, the gravest first."""
    every = [e for _, edges in judged for e in edges]
    between = [e for e in every if e.where is not Where.INSIDE]
    inside = [e for e in every if e.where is Where.INSIDE]
    state = reader.state
    yield from _mixed(between, verdict)
    yield from _sockets(state, between + [e for e in inside if e.edge.kind == "NET"])
    yield from _gpudirect(state, between)
    yield from _libfabric(every)
    yield from _inside(state, inside)
    yield from _communicators(verdicts, between)
    yield from _hosts(judged, between)
    yield from _reading(reader, judged)


def _environment(state: LogState, name: str) -> set[str]:
    return {p.environment[name] for p in state.processes.values() if name in p.environment}


def _names(edges: list[JudgedEdge]) -> str:
    return ", ".join(sorted({f"{e.edge.kind}/{e.edge.network}" for e in edges}))


def _mixed(between: list[JudgedEdge], verdict: Transport) -> Iterator[LogWarning]:
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


def _sockets(state: LogState, edges: list[JudgedEdge]) -> Iterator[LogWarning]:
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
    disabled = _environment(state, "NCCL_IB_DISABLE")
    if "1" in disabled or "Socket" in _environment(state, "NCCL_NET"):
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


def _gpudirect(state: LogState, between: list[JudgedEdge]) -> Iterator[LogWarning]:
    from wirecost.fabric.ncclog.judge import gpudirect_of

    wired = [e for e in between if e.base in (Transport.RDMA, Transport.EFA)]
    if not wired:
        return
    match gpudirect_of(wired):
        case GpuDirect.NONE:
            yield LogWarning(
                "rdma_staged",
                f"{_names(wired)} without GPUDirect: data is staged through host memory on both ends. "
                + _why_staged(state),
            )
        case GpuDirect.RECEIVE_ONLY | GpuDirect.SEND_ONLY as one:
            does, not_ = ("receiving", "sending") if one is GpuDirect.RECEIVE_ONLY else ("sending", "receiving")
            code = "gdr_receive_only" if one is GpuDirect.RECEIVE_ONLY else "gdr_send_only"
            read = ""
            if one is GpuDirect.RECEIVE_ONLY:
                read = (
                    "NCCL_NET_GDR_READ=0 is set; unset it or set it to 1"
                    if "0" in _environment(state, "NCCL_NET_GDR_READ")
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
    levels = _environment(state, "NCCL_NET_GDR_LEVEL") | _environment(state, "NCCL_IB_GDR_LEVEL")
    if "0" in _environment(state, "NCCL_IB_CUDA_SUPPORT"):
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


def _libfabric(every: list[JudgedEdge]) -> Iterator[LogWarning]:
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


def _inside(state: LogState, inside: list[JudgedEdge]) -> Iterator[LogWarning]:
    net = [e for e in inside if e.edge.kind == "NET"]
    if net:
        hosts = sorted({h for e in net for h in e.hosts if h})
        if all(_environment(state, f"NCCL_{name}_DISABLE") & {"1"} for name in ("P2P", "SHM")):
            why = "NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 are set; unset them"
        else:
            why = (
                "as when each GPU sits in its own container. Give one container all GPUs, or share /dev/shm, the "
                "PID and IPC namespaces and NCCL_HOSTID between them"
            )
        where = f"ranks of one host ({hosts[0]})" if hosts else "ranks of one host"
        lost = "peer access and shared memory between them are lost"
        yield LogWarning("net_inside_host", f"{where} talk over {_names(net)}: {lost}, {why}")
    shm = [e for e in inside if e.edge.kind == "SHM"]
    if shm:
        partly = any(e.edge.kind == "P2P" for e in inside)
        why = ""
        if _environment(state, "NCCL_P2P_DISABLE") & {"1"}:
            why = "NCCL_P2P_DISABLE=1 is set; unset it"
        elif _environment(state, "NCCL_P2P_LEVEL") & {"0", "LOC"}:
            why = "NCCL_P2P_LEVEL switches it off"
        elif state.p2p_refusals:
            why = "NCCL says that peer access is disabled between connected GPUs: look at ACS and the IOMMU"
        else:
            why = "GPUs on different CPU sockets or without peer access do this; `nvidia-smi topo -p2p r` shows it"
        yield LogWarning(
            "shm_inside_host",
            f"{'some' if partly else 'all'} edges inside a host go through host memory (SHM), not GPU "
            f"peer access. " + why,
        )


def _communicators(verdicts: tuple[CommunicatorVerdict, ...], between: list[JudgedEdge]) -> Iterator[LogWarning]:
    known = [v for v in verdicts if v.verdict is not Transport.UNKNOWN]
    if len({v.verdict for v in known}) > 1:
        sample: dict[str, int] = {}
        for v in known:
            sample[v.verdict.value] = sample.get(v.verdict.value, 0) + 1
        listed = ", ".join(f"{count} on {name}" for name, count in sample.items())
        rest = "the verdict speaks of the edges between hosts" if between else "all of them stay inside a host"
        yield LogWarning(
            "communicators_differ",
            f"communicators use different transports ({listed}); {rest}. Look at each communicator's own verdict",
        )


def _hosts(judged: list[tuple[Communicator, list[JudgedEdge]]], between: list[JudgedEdge]) -> Iterator[LogWarning]:
    if any(c.names_not_unique for c, _ in judged):
        yield LogWarning(
            "host_names_not_unique",
            "one host name stands for several machines here (two ranks on the same device of it), so "
            "ranks can't be "
            "told apart by host; give machines different host names, or paste the log with its own",
        )
    if any(e.process.environment.get("NCCL_HOSTID") for _, edges in judged for e in edges):
        yield LogWarning(
            "hosts_from_hostid",
            "NCCL_HOSTID is set: hosts are told apart by it, as NCCL does, and several of them may be one machine",
        )
    presumed = [e for e in between if e.where is Where.PRESUMED]
    if not presumed:
        return
    if any(e.process.host is None for e in presumed):
        yield LogWarning(
            "hosts_unknown",
            "the prefix host:pid:tid is cut off, so which host a rank runs on can't be known: network "
            "edges are taken "
            "as edges between hosts, and could join containers of one host. Keep the prefix when you copy a log",
        )
    elif not any(c.names_not_unique for c, _ in judged):
        ranks = sorted({e.edge.receiver if e.edge.side == "send" else e.edge.sender for e in presumed})
        shown = ", ".join(map(str, ranks[:6])) + (", ..." if len(ranks) > 6 else "")
        yield LogWarning(
            "peer_hosts_not_in_log",
            f"the log lacks the ranks at the other end of its network edges ({shown}), so their hosts "
            f"are not known; "
            "these are taken as edges between hosts. Collect every rank's log (NCCL_DEBUG_FILE=nccl.%h.%p.log)",
        )


def _reading(reader: LogReader, judged: list[tuple[Communicator, list[JudgedEdge]]]) -> Iterator[LogWarning]:
    if any(c.id is None and c.members == [] for c, _ in judged) and any(c.members for c, _ in judged):
        loose = sum(len(edges) for c, edges in judged if c.id is None)
        yield LogWarning(
            "edges_without_communicator",
            f"{loose} edges can belong to more than one communicator, or to one whose Init line is "
            f"missing; they are "
            "listed apart",
        )
    if reader.cut_lines:
        yield LogWarning(
            "lines_cut",
            f"{reader.cut_lines} lines are cut or run into each other; what they say beyond doubt is "
            f"used. Write one "
            "file for each process: NCCL_DEBUG_FILE=nccl.%h.%p.log",
        )
    if reader.state.edges_left_out:
        yield LogWarning(
            "edges_left_out",
            f"{reader.state.edges_left_out} further edges are not looked at, to bound memory; the "
            f"verdict is that of "
            "the others",
        )
    for name in reader.unreadable:
        yield LogWarning("log_truncated", f"{name} ends before its end; what came before is used")
    if reader.skipped:
        shown = ", ".join(reader.skipped[:3]) + (", ..." if len(reader.skipped) > 3 else "")
        yield LogWarning("files_skipped", f"{len(reader.skipped)} files that are not text were left out: {shown}")


def why_communicator_unknown(communicator: Communicator, edges: list[JudgedEdge]) -> str:
    """One line for a communicator without a verdict."""
    if edges:
        return f"unknown because what {_names(edges)} runs on is not known"
    if communicator.nranks == 1:
        return "unknown because it has one rank and needs no transport"
    return "unknown because the log holds no connection line of it ('Channel ... via ...')"


def why_unknown(reader: LogReader, edges: list[JudgedEdge]) -> str:
    """The reason of an unknown verdict: one line, starting with "unknown because"."""
    state = reader.state
    if edges:
        return f"unknown because what {_names(edges)} runs on is not known here; see the plugin's documentation"
    if reader.bytes == 0:
        return "unknown because the input is empty"
    if reader.nccl_lines == 0 and not state.versions and not _selected(state):
        if reader.binary_bytes * 20 > reader.bytes:
            return "unknown because the input is binary, not a log"
        return (
            f"unknown because none of {reader.lines} lines is NCCL's; run the job with NCCL_DEBUG=INFO "
            f"(and make the "
            "launcher pass it to every process)"
        )
    cut = "; the log seems cut short" if reader.unreadable or reader.cut_lines else ""
    if _selected(state):
        names = ", ".join(sorted(_selected(state)))
        return (
            f"unknown because the log only says that network {names} was selected: it holds no connection line "
            f"('Channel ... via ...'), which alone proves what is used{cut}. NCCL prints them at "
            f"NCCL_DEBUG=INFO, from "
            "2.22 on at the first collective"
        )
    if state.ib_devices or any(p.interfaces for p in state.processes.values()):
        return (
            "unknown because the log lists devices that NCCL found, which are candidates only, and holds no "
            f"connection line ('Channel ... via ...'){cut}; log until after the first collective"
        )
    return (
        "unknown because NCCL's lines here hold no connection line ('Channel ... via ...')"
        f"{cut}; run with NCCL_DEBUG=INFO (VERSION and WARN don't show transports)"
    )


def _selected(state: LogState) -> set[str]:
    found: set[str] = set()
    for process in state.processes.values():
        found.update(process.selected)
        for member in process.memberships:
            found.update(member.selected)
    return found
