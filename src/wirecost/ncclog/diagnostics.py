"""The diagnostics of a verdict. Each prevents a wrong conclusion from an NCCL log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.ncclog.attempts import Attempts
from wirecost.ncclog.communicators import Communicator
from wirecost.ncclog.diagnostics_between import gpudirect, libfabric, mixed, sockets
from wirecost.ncclog.diagnostics_job import (
    devices,
    failures,
    in_network_reduction,
    several_attempts,
    versions,
)
from wirecost.ncclog.edges import networks_of
from wirecost.ncclog.result import CommunicatorVerdict, Transport, Where
from wirecost.ncclog.state import environment_of

if TYPE_CHECKING:
    from wirecost.ncclog.edges import JudgedEdge
    from wirecost.ncclog.read_log import ReadLog
    from wirecost.ncclog.state import LogState


def diagnostics_of(
    log: ReadLog,
    judged: list[tuple[Communicator, list[JudgedEdge]]],
    verdicts: tuple[CommunicatorVerdict, ...],
    verdict: Transport,
    attempts: Attempts,
) -> Iterator[Diagnostic]:
    """Yields all diagnostics of a log, those on failures first and those on the log's text last."""
    every = [e for _, edges in judged for e in edges]
    between = [e for e in every if e.where is not Where.INSIDE]
    inside = [e for e in every if e.where is Where.INSIDE]
    state = log.state
    yield from failures(state, every)
    yield from several_attempts(attempts, every)
    yield from versions(state)
    yield from mixed(between, verdict)
    yield from sockets(state, between + [e for e in inside if e.edge.kind == "NET"])
    yield from gpudirect(state, between)
    yield from devices(state, between)
    yield from in_network_reduction(every)
    yield from libfabric(every)
    yield from _inside(state, inside)
    yield from _communicators(verdicts, between)
    yield from _hosts(judged, between)
    yield from _reading(log, judged)


def _inside(state: LogState, inside: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields diagnostics on slow edges between ranks of one host."""
    net = [e for e in inside if e.edge.kind == "NET"]
    if net:
        hosts = sorted({h for e in net for h in e.hosts if h})
        disabled = all(environment_of(state, f"NCCL_{name}_DISABLE") & {"1"} for name in ("P2P", "SHM"))
        where = f"ranks of one host ({hosts[0]})" if hosts else "ranks of one host"
        apart = "as when each GPU sits in its own container"
        why = "NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 are set" if disabled else apart
        yield diagnostic(
            "net_inside_host",
            f"{where} communicate over {networks_of(net)}, without peer access or shared memory: {why}",
            remedy="unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE" if disabled else None,
        )
    shm = [e for e in inside if e.edge.kind == "SHM"]
    if shm:
        extent = "some" if any(e.edge.kind == "P2P" for e in inside) else "all"
        why, remedy = _why_shm(state)
        yield diagnostic(
            "shm_inside_host",
            f"{extent} edges inside a host go through host memory (SHM), not GPU peer access: {why}",
            remedy=remedy,
        )


def _why_shm(state: LogState) -> tuple[str, str | None]:
    """Returns the reason why shared memory is used inside a host, and the remedy."""
    if environment_of(state, "NCCL_P2P_DISABLE") & {"1"}:
        return "NCCL_P2P_DISABLE=1 is set", "unset NCCL_P2P_DISABLE"
    if environment_of(state, "NCCL_P2P_LEVEL") & {"0", "LOC"}:
        return "NCCL_P2P_LEVEL switches peer access off", "unset NCCL_P2P_LEVEL"
    if state.p2p_refusals:
        return "NCCL reports that peer access is disabled between connected GPUs", "look at ACS and the IOMMU"
    return "GPUs on different CPU sockets or without peer access do this", None


def _communicators(verdicts: tuple[CommunicatorVerdict, ...], between: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields a diagnostic if communicators use different transports."""
    known = [v for v in verdicts if v.verdict is not Transport.UNKNOWN]
    if len({v.verdict for v in known}) > 1:
        counts: dict[str, int] = {}
        for v in known:
            counts[v.verdict.value] = counts.get(v.verdict.value, 0) + 1
        listed = ", ".join(f"{count} on {name}" for name, count in counts.items())
        rest = "the verdict is based on the edges between hosts" if between else "all of them stay inside a host"
        yield diagnostic("communicators_differ", f"communicators use different transports ({listed}); {rest}")


def _hosts(judged: list[tuple[Communicator, list[JudgedEdge]]], between: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields diagnostics on uncertainty about which edges join hosts."""
    if any(c.names_not_unique for c, _ in judged):
        yield diagnostic(
            "host_names_not_unique",
            "one host name stands for several machines here (two ranks on the same device of it), so ranks can't "
            "be told apart by host",
        )
    if any(e.process.environment.get("NCCL_HOSTID") for _, edges in judged for e in edges):
        yield diagnostic(
            "hosts_from_hostid",
            "NCCL_HOSTID is set: it distinguishes the hosts, as in NCCL, and several hosts may be one machine",
        )
    presumed = [e for e in between if e.where is Where.PRESUMED]
    if not presumed:
        return
    if any(e.process.host is None for e in presumed):
        yield diagnostic(
            "hosts_unknown",
            "the prefix host:pid:tid is cut off, so the host of a rank is unknown: network edges are "
            "taken as edges between hosts, but they could connect containers of one host",
        )
    elif not any(c.names_not_unique for c, _ in judged):
        ranks = sorted({e.edge.receiver if e.edge.side == "send" else e.edge.sender for e in presumed})
        shown = ", ".join(map(str, ranks[:6])) + (", ..." if len(ranks) > 6 else "")
        yield diagnostic(
            "peer_hosts_not_in_log",
            f"the log lacks the ranks at the other end of its network edges ({shown}), so their hosts are not "
            "known; these are taken as edges between hosts",
        )


def _reading(log: ReadLog, judged: list[tuple[Communicator, list[JudgedEdge]]]) -> Iterator[Diagnostic]:
    """Yields diagnostics on missing parts of the log's text."""
    if any(c.id is None and c.members == [] for c, _ in judged) and any(c.members for c, _ in judged):
        loose = sum(len(edges) for c, edges in judged if c.id is None)
        yield diagnostic(
            "edges_without_communicator",
            f"{loose} edges can belong to more than one communicator, or to one whose Init line is missing; they "
            "are listed separately",
            count=loose,
        )
    if unread := log.state.unread_network_lines:
        yield diagnostic(
            "network_lines_unread",
            f"{unread} connection lines of a network can't be read; the verdict is based on the others",
            count=unread,
        )
    if log.cut_lines:
        yield diagnostic(
            "lines_cut",
            f"{log.cut_lines} lines are cut or run into each other; their unambiguous parts are used",
            count=log.cut_lines,
        )
    if left_out := log.state.edges_left_out:
        yield diagnostic(
            "edges_left_out",
            f"{left_out} further edges are left out, to bound memory; the verdict is based on the others",
            count=left_out,
        )
    for name in log.unreadable:
        yield diagnostic("log_truncated", "the log is cut off; the part before the cut is used", subject=name)
    if log.skipped:
        shown = ", ".join(log.skipped[:3]) + (", ..." if len(log.skipped) > 3 else "")
        yield diagnostic(
            "files_skipped",
            f"{len(log.skipped)} files that are not text were left out: {shown}",
            count=len(log.skipped),
        )
