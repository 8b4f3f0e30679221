"""Why a log gives no verdict: one line each, starting with "unknown because"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.ncclog.communicators import Communicator
from wirecost.ncclog.remarks_between import networks_of

if TYPE_CHECKING:
    from wirecost.ncclog.judge import JudgedEdge
    from wirecost.ncclog.reader import LogReader
    from wirecost.ncclog.state import LogState


def why_communicator_unknown(communicator: Communicator, edges: list[JudgedEdge]) -> str:
    """One line for a communicator without a verdict."""
    if edges:
        return f"unknown because what {networks_of(edges)} runs on is not known"
    if communicator.nranks == 1:
        return "unknown because it has one rank and needs no transport"
    return "unknown because the log holds no connection line of it ('Channel ... via ...')"


def why_unknown(reader: LogReader, edges: list[JudgedEdge]) -> str:
    """The reason of an unknown verdict: one line, starting with "unknown because"."""
    state = reader.state
    if edges:
        return (
            f"unknown because what {networks_of(edges)} runs on is not known here; see the plugin's documentation"
        )
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
