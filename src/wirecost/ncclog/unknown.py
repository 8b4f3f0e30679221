"""Why a log gives no verdict: one line each, starting with "unknown because"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.ncclog.communicators import Communicator
from wirecost.ncclog.edges import networks_of
from wirecost.ncclog.result import Transport

if TYPE_CHECKING:
    from wirecost.ncclog.edges import JudgedEdge
    from wirecost.ncclog.read_log import ReadLog
    from wirecost.ncclog.state import LogState


def why_communicator_unknown(communicator: Communicator, edges: list[JudgedEdge]) -> str:
    """One line for a communicator without a verdict."""
    if edges:
        return f"unknown because what {networks_of(edges)} runs on depends on the plugin"
    if communicator.nranks == 1:
        return "unknown because it has one rank and needs no transport"
    return "unknown because the log holds no connection line of it ('Channel ... via ...')"


def why_failed(failed: list[JudgedEdge]) -> str:
    """Why connections that the log shows being set up prove no use."""
    failure = failed[0].failure
    assert failure is not None
    names = networks_of(failed)
    direct = " with GPUDirect" if all(e.edge.gdr for e in failed) else ""
    where = f" on {failure.host}" if failure.host else ""
    return (
        f"unknown because {names}{direct} was set up and then failed: {failure.words}{where}; "
        "the connection lines prove no use"
    )


def why_unread(lines: int, inside: Transport) -> str:
    """Why a log whose readable edges all stay inside a host has no verdict."""
    return (
        f"unknown because {lines} connection lines of a network can't be read; the {inside.value} edges inside "
        "hosts that can be read don't say what joins the hosts"
    )


def why_nodes(communicator: Communicator, nodes: int, inside: Transport) -> str:
    """Why a communicator of several nodes, whose edges in the log all stay inside one, has no verdict."""
    name = f"communicator {communicator.id}" if communicator.id else "a communicator"
    edges = (
        f"its edges in the log ({inside.value}) stay inside a node"
        if communicator.edges
        else "the log holds none of its connections"
    )
    return (
        f"unknown because {name} has {nodes} nodes and {edges}: what joins them isn't in the log. Collect every "
        "rank's log until after the first collective (NCCL_DEBUG_FILE=nccl.%h.%p.log)"
    )


def why_unknown(log: ReadLog, edges: list[JudgedEdge]) -> str:
    """The reason of an unknown verdict: one line, starting with "unknown because"."""
    state = log.state
    if edges:
        return (
            f"unknown because what {networks_of(edges)} runs on depends on the plugin, whose wire is not known "
            "here; see its documentation and its own lines in the log"
        )
    if log.bytes == 0:
        return "unknown because the input is empty"
    if log.nccl_lines == 0 and not state.versions and not _selected(state):
        if log.binary_bytes * 20 > log.bytes:
            return "unknown because the input is binary, not a log"
        return (
            f"unknown because none of {log.lines} lines is NCCL's; run the job with NCCL_DEBUG=INFO "
            f"(and make the "
            "launcher pass it to every process)"
        )
    cut = "; the log seems cut short" if log.unreadable or log.cut_lines else ""
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
