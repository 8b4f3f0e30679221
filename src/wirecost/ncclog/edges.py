"""Combines edges with the rest of a log and determines the transport of a set of edges."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from wirecost.ncclog.communicators import Communicator
from wirecost.ncclog.grammar import Edge
from wirecost.ncclog.plugins import Wire, is_ipoib, provider_kind, wire_of
from wirecost.ncclog.result import GpuDirect, Transport, Where
from wirecost.ncclog.state import Failure, Process

# Inside a host the slowest kind of edge bounds a ring and determines the verdict; slowest first.
_SLOWEST_FIRST = (
    Transport.UNKNOWN,
    Transport.TCP,
    Transport.IPOIB,
    Transport.EFA,
    Transport.RDMA,
    Transport.RDMA_GDR,
    Transport.SHM,
    Transport.P2P,
)


@dataclass(frozen=True, slots=True)
class JudgedEdge:
    """An edge with the information that the rest of the log has about it."""

    edge: Edge
    process: Process
    hosts: tuple[str | None, str | None]
    where: Where
    base: Transport  # RDMA for any RDMA edge; the use of GPUDirect is determined from all edges together
    interface: str | None
    failure: Failure | None = None  # the failure of this connection or of one that depends on it


Judged = list[tuple[Communicator, list[JudgedEdge]]]


def deciding_edges(edges: list[JudgedEdge]) -> list[JudgedEdge]:
    """Returns the edges that determine the verdict: those between hosts if there are any, else those inside a
    host.
    """
    return [e for e in edges if e.where is not Where.INSIDE] or edges


def transport_of(edges: list[JudgedEdge]) -> Transport:
    """Returns the transport of the edges between hosts if there are any, else of those inside a host."""
    deciding = deciding_edges(edges)
    kinds = {final_kind(group) for group in _by_base(deciding).values()}
    if not kinds:
        return Transport.UNKNOWN
    if all(e.where is Where.INSIDE for e in deciding):
        return min(kinds, key=_SLOWEST_FIRST.index)
    return kinds.pop() if len(kinds) == 1 else Transport.MIXED


def final_kind(edges: list[JudgedEdge]) -> Transport:
    """Returns the transport of edges with the same base transport."""
    base = edges[0].base
    if base is not Transport.RDMA:
        return base
    match gpudirect_of(edges):
        case GpuDirect.BOTH:
            return Transport.RDMA_GDR
        case GpuDirect.DIFFERS:
            return Transport.MIXED
        case _:
            return Transport.RDMA


def gpudirect_of(edges: list[JudgedEdge]) -> GpuDirect:
    """Returns whether GPUDirect is used on both ends, one end or none.

    An end without a line counts like the other end. A line that may be truncated counts only if nothing else is
    known. "On one end only" requires a rank or an edge that shows both ends; otherwise the ranks differ.
    """
    sides = {
        side: {e.edge.gdr for e in edges if e.edge.side in (side, None) and e.edge.gdr is not None}
        for side in ("send", "receive")
    }
    send, receive = sides["send"], sides["receive"]
    if len(send) > 1 or len(receive) > 1:
        return GpuDirect.DIFFERS
    if send and receive and send != receive:
        shown = {
            side: {place for e in edges if e.edge.side == side for place in _places(e.edge)}
            for side in ("send", "receive")
        }
        if not shown["send"] & shown["receive"]:
            return GpuDirect.DIFFERS
        return GpuDirect.RECEIVE_ONLY if True in receive else GpuDirect.SEND_ONLY
    return GpuDirect.BOTH if True in send | receive else GpuDirect.NONE


def networks_of(edges: list[JudgedEdge]) -> str:
    """Returns the edges' networks in NCCL's words, such as "NET/IB, NET/Socket"."""
    return ", ".join(sorted({f"{e.edge.kind}/{e.edge.network}" for e in edges}))


def _places(edge: Edge) -> tuple[object, object]:
    return ("rank", edge.local_rank), ("edge", edge.sender, edge.receiver)


def _by_base(edges: list[JudgedEdge]) -> dict[Transport, list[JudgedEdge]]:
    groups: dict[Transport, list[JudgedEdge]] = defaultdict(list)
    for edge in edges:
        groups[edge.base].append(edge)
    return groups


def judge_edge(communicator: Communicator, process: Process, edge: Edge) -> JudgedEdge:
    host = communicator.host_of
    ends = (host.get(edge.sender), host.get(edge.receiver))
    # The printing rank's own host is certain: the line's prefix names it, if host names are meaningful.
    if not communicator.names_not_unique and process.host_identity is not None:
        mine = process.host_identity
        ends = (ends[0], mine) if edge.side == "receive" else (mine, ends[1])
    return JudgedEdge(edge, process, ends, _where(communicator, edge, ends), *_base(process, edge))


def _where(communicator: Communicator, edge: Edge, ends: tuple[str | None, str | None]) -> Where:
    if edge.kind == "COLLNET":
        return Where.BETWEEN  # in-network reduction is done by switches
    if edge.kind == "SHM" or (edge.kind == "P2P" and not edge.network.startswith("MNNVL")):
        return Where.INSIDE
    if ends[0] is not None and ends[1] is not None:
        return Where.INSIDE if ends[0] == ends[1] else Where.BETWEEN
    if edge.kind == "P2P":
        # Of an NVLink domain, whose hosts NCCL counts as one node: a GPU that another rank here has is another
        # host's.
        peers = ((ends[1], edge.sender_device), (ends[0], edge.receiver_device))
        unknown_end = peers[0] if ends[0] is None else peers[1]
        return Where.PRESUMED if unknown_end in communicator.gpus else Where.INSIDE
    if communicator.nodes == 1:
        return Where.INSIDE
    return Where.PRESUMED


def _base(process: Process, edge: Edge) -> tuple[Transport, str | None]:
    if edge.kind == "P2P":
        return Transport.P2P, None
    if edge.kind == "SHM":
        return Transport.SHM, None
    wire = wire_of(edge.network)
    if wire is Wire.LIBFABRIC:
        kind = provider_kind(process.provider) if process.provider else "efa"
        return {"efa": Transport.EFA, "rdma": Transport.RDMA, "tcp": Transport.TCP}.get(
            kind or "", Transport.UNKNOWN
        ), None
    if wire is Wire.TCP:
        interface = _interface(process, edge)
        return (Transport.IPOIB if interface and is_ipoib(interface) else Transport.TCP), interface
    # GPUDirect RDMA on the edge proves RDMA whatever the plugin is called.
    return (Transport.RDMA if wire is Wire.RDMA or edge.gdr else Transport.UNKNOWN), None


def _interface(process: Process, edge: Edge) -> str | None:
    """Returns a socket device's interface from NCCL's list, else from NCCL_SOCKET_IFNAME if that
    allows only one.
    """
    if edge.net_device is not None and edge.net_device in process.interfaces:
        return process.interfaces[edge.net_device]
    requested = process.environment.get("NCCL_SOCKET_IFNAME", "")
    if not process.interfaces and requested and not requested.startswith("^") and "," not in requested:
        return requested.removeprefix("=")
    return None
