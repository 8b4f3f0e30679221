"""Judges what a log holds: a transport for each pair of hosts, each communicator, and all of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from wirecost.ncclog import unknown
from wirecost.ncclog.attempts import Attempts, attempts_of
from wirecost.ncclog.communicators import Communicator, communicators_of
from wirecost.ncclog.diagnostics import diagnostics_of
from wirecost.ncclog.edges import (
    Judged,
    JudgedEdge,
    deciding_edges,
    gpudirect_of,
    judge_edge,
    transport_of,
)
from wirecost.ncclog.failures import Concerns
from wirecost.ncclog.plugins import Wire, wire_of
from wirecost.ncclog.result import (
    CommunicatorVerdict,
    PairVerdict,
    Transport,
    Verdict,
    Where,
)

if TYPE_CHECKING:
    from wirecost.ncclog.read_log import ReadLog
    from wirecost.ncclog.state import Failure, LogState


def judge(log: ReadLog) -> Verdict:
    """The verdict on everything that was read."""
    state = log.state
    providers = {p.provider for p in state.processes.values() if p.provider is not None}
    if len(providers) == 1:  # what all processes that say it agree on goes for those that don't
        for process in state.processes.values():
            process.provider = process.provider or next(iter(providers))
    judged = [(c, [judge_edge(c, p, e) for p, e in c.edges]) for c in communicators_of(state)]
    if state.failures and not state.completed_before:
        judged = [(c, _with_failures(state, c, edges)) for c, edges in judged]
    verdicts = tuple(_communicator(c, edges) for c, edges in judged)
    attempts = attempts_of(state)
    verdict, reason = _of_all(log, judged, attempts)
    return Verdict(
        verdict=verdict,
        reason=reason,
        communicators=verdicts,
        diagnostics=tuple(diagnostics_of(log, judged, verdicts, verdict, attempts)),
        nccl_versions=tuple(state.versions),
        lines=log.lines,
        nccl_lines=log.nccl_lines,
        bytes=log.bytes,
        sources=log.sources,
    )


def _of_all(log: ReadLog, judged: Judged, attempts: Attempts) -> tuple[Transport, str | None]:
    """The verdict on the whole log, and the reason of an unknown one."""
    every = [e for _, edges in judged for e in edges]
    deciding = deciding_edges(every)
    failed = [e for e in deciding if e.failure is not None]
    if failed and (len(failed) == len(deciding) or any(attempts.is_last(e.process) for e in failed)):
        return Transport.UNKNOWN, unknown.why_failed(failed)
    verdict = transport_of([e for e in every if e.failure is None] if failed else every)
    if verdict is Transport.UNKNOWN:
        return verdict, unknown.why_unknown(log, every)
    if verdict in (Transport.P2P, Transport.SHM) and all(e.where is Where.INSIDE for e in every):
        if log.state.unread_network_lines:
            return Transport.UNKNOWN, unknown.why_unread(log.state.unread_network_lines, verdict)
        unexplained = [c for c, edges in judged if nodes_unexplained(c, edges) > 1]
        if unexplained:
            return Transport.UNKNOWN, unknown.why_nodes(unexplained[0], nodes_of(unexplained[0]), verdict)
    return verdict, None


def nodes_of(communicator: Communicator) -> int:
    """On how many nodes a communicator's ranks are: by NCCL's own count, else by the hosts in the log.

    Hosts that peer access or shared memory joins are one node, whatever they are called.
    """
    if communicator.nodes is not None:
        return communicator.nodes
    node = {host: host for host in communicator.hosts()}

    def root(host: str) -> str:
        while node[host] != host:
            host = node[host]
        return host

    for _, edge in communicator.edges:
        a, b = communicator.host_of.get(edge.sender), communicator.host_of.get(edge.receiver)
        if edge.kind in ("P2P", "SHM") and a is not None and b is not None:
            node[root(a)] = root(b)
    return len({root(host) for host in node})


def nodes_unexplained(communicator: Communicator, edges: list[JudgedEdge]) -> int:
    """How many nodes a communicator has where no edge of it leaves one; 0 where one does."""
    return 0 if any(e.where is not Where.INSIDE for e in edges) else nodes_of(communicator)


def _with_failures(state: LogState, communicator: Communicator, edges: list[JudgedEdge]) -> list[JudgedEdge]:
    """The edges, each with the failure that takes its proof away: one rank that fails ends its communicators."""
    order = {id(process): k for k, process in enumerate(state.processes.values())}
    processes = {id(m.process): m.process for m in communicator.members}
    processes |= {id(e.process): e.process for e in edges}
    pointers = {(id(m.process), m.comm) for m in communicator.members}
    deciding = {id(e) for e in deciding_edges(edges)}
    found = []
    for edge in edges:
        failure = next(
            (
                f
                for f in state.failures
                if _takes_proof(f, edge, deciding=id(edge) in deciding)
                and (
                    any(order[k] < f.processes_before for k in processes)
                    if f.process is None
                    else id(f.process) in processes and (f.comm is None or (id(f.process), f.comm) in pointers)
                )
            ),
            None,
        )
        found.append(edge if failure is None else replace(edge, failure=failure))
    return found


def _takes_proof(failure: Failure, edge: JudgedEdge, *, deciding: bool) -> bool:
    match failure.concerns:
        case Concerns.RDMA:
            return edge.base is Transport.RDMA
        case Concerns.SOCKETS:
            return edge.base in (Transport.TCP, Transport.IPOIB)
        case Concerns.LIBFABRIC:
            return edge.edge.kind == "NET" and wire_of(edge.edge.network) is Wire.LIBFABRIC
        case _:
            return deciding


def _communicator(communicator: Communicator, edges: list[JudgedEdge]) -> CommunicatorVerdict:
    verdict, reason = transport_of(edges), None
    failed = [e for e in deciding_edges(edges) if e.failure is not None]
    if failed:
        verdict, reason = Transport.UNKNOWN, unknown.why_failed(failed)
    elif verdict is Transport.UNKNOWN:
        reason = unknown.why_communicator_unknown(communicator, edges)
    elif (nodes := nodes_unexplained(communicator, edges)) > 1 and verdict in (Transport.P2P, Transport.SHM):
        verdict, reason = Transport.UNKNOWN, unknown.why_nodes(communicator, nodes, verdict)
    selected: list[str] = []
    for member in communicator.members:
        selected += [s for s in member.selected if s not in selected]
    return CommunicatorVerdict(
        id=communicator.id,
        nranks=communicator.nranks,
        ranks_seen=len(communicator.host_of),
        nodes=communicator.nodes,
        hosts=tuple(communicator.hosts()),
        verdict=verdict,
        reason=reason,
        selected=tuple(selected),
        pairs=_pairs(edges),
    )


def _pairs(edges: list[JudgedEdge]) -> tuple[PairVerdict, ...]:
    groups: dict[tuple[str, str, Where], list[JudgedEdge]] = defaultdict(list)
    for edge in edges:
        a, b = sorted(h or "" for h in edge.hosts)
        groups[(a, b, edge.where)].append(edge)
    found = []
    for (a, b, where), group in sorted(groups.items()):
        rdma = [e for e in group if e.base in (Transport.RDMA, Transport.EFA)]
        found.append(
            PairVerdict(
                hosts=(a or None, b or None),
                where=where,
                verdict=transport_of(group),
                networks=tuple(sorted({f"{e.edge.kind}/{e.edge.network}" for e in group})),
                interfaces=tuple(sorted({e.interface for e in group if e.interface})),
                gpudirect=gpudirect_of(rdma) if rdma else None,
                edges=len({(e.edge.sender, e.edge.receiver, e.edge.connection) for e in group}),
                failed=any(e.failure is not None for e in group),
            )
        )
    return tuple(found)
