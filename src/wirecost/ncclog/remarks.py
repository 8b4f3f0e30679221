"""The remarks on a verdict: each is a conclusion that people draw wrongly from an NCCL log, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from wirecost.ncclog.attempts import Attempts
from wirecost.ncclog.communicators import Communicator
from wirecost.ncclog.remarks_between import (
    environment_of,
    gpudirect,
    libfabric,
    mixed,
    networks_of,
    sockets,
)
from wirecost.ncclog.remarks_job import (
    devices,
    failures,
    in_network_reduction,
    several_attempts,
    versions,
)
from wirecost.ncclog.result import CommunicatorVerdict, LogWarning, Transport, Where

if TYPE_CHECKING:
    from wirecost.ncclog.edges import JudgedEdge
    from wirecost.ncclog.reader import LogReader
    from wirecost.ncclog.state import LogState


def warnings_of(
    reader: LogReader,
    judged: list[tuple[Communicator, list[JudgedEdge]]],
    verdicts: tuple[CommunicatorVerdict, ...],
    verdict: Transport,
    attempts: Attempts,
) -> Iterator[LogWarning]:
    """All remarks, the gravest first."""
    every = [e for _, edges in judged for e in edges]
    between = [e for e in every if e.where is not Where.INSIDE]
    inside = [e for e in every if e.where is Where.INSIDE]
    state = reader.state
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
    yield from _reading(reader, judged)


def _inside(state: LogState, inside: list[JudgedEdge]) -> Iterator[LogWarning]:
    net = [e for e in inside if e.edge.kind == "NET"]
    if net:
        hosts = sorted({h for e in net for h in e.hosts if h})
        if all(environment_of(state, f"NCCL_{name}_DISABLE") & {"1"} for name in ("P2P", "SHM")):
            why = "NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 are set; unset them"
        else:
            why = (
                "as when each GPU sits in its own container. Give one container all GPUs, or share /dev/shm, the "
                "PID and IPC namespaces and NCCL_HOSTID between them"
            )
        where = f"ranks of one host ({hosts[0]})" if hosts else "ranks of one host"
        lost = "peer access and shared memory between them are lost"
        yield LogWarning("net_inside_host", f"{where} talk over {networks_of(net)}: {lost}, {why}")
    shm = [e for e in inside if e.edge.kind == "SHM"]
    if shm:
        partly = any(e.edge.kind == "P2P" for e in inside)
        why = ""
        if environment_of(state, "NCCL_P2P_DISABLE") & {"1"}:
            why = "NCCL_P2P_DISABLE=1 is set; unset it"
        elif environment_of(state, "NCCL_P2P_LEVEL") & {"0", "LOC"}:
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
    if reader.state.unread_network_lines:
        yield LogWarning(
            "network_lines_unread",
            f"{reader.state.unread_network_lines} connection lines of a network can't be read; the verdict is "
            "that of the others",
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
