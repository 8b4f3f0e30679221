"""The result of reading a log: the verdict in total, for each communicator and for each pair of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from wirecost.diagnostics import Diagnostic, diagnostic, legacy_warnings


class Transport(StrEnum):
    """The transport that NCCL reported using. `MIXED` occurs only if edges between hosts differ."""

    RDMA_GDR = "rdma-gdr"  # InfiniBand, RoCE or Slingshot, the NIC reads and writes GPU memory on both sides
    RDMA = "rdma"  # the same network, but staged through host memory on at least one side
    TCP = "tcp"
    IPOIB = "ipoib"  # TCP over an InfiniBand interface
    EFA = "efa"
    SHM = "shm"  # through host memory inside a host
    P2P = "p2p"  # GPU peer access: NVLink or PCIe
    MIXED = "mixed"
    UNKNOWN = "unknown"


class Where(StrEnum):
    """Whether an edge joins two hosts. `PRESUMED` is a network edge with an end whose host isn't in the log."""

    BETWEEN = "between-hosts"
    PRESUMED = "presumed-between-hosts"
    INSIDE = "inside-host"


class GpuDirect(StrEnum):
    """The ends of the edges that access GPU memory without staging in host memory."""

    BOTH = "both"
    RECEIVE_ONLY = "receive-only"
    SEND_ONLY = "send-only"
    NONE = "none"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """The verdict on one pair of hosts, or on one host twice for the edges inside it. An unknown host is None."""

    hosts: tuple[str | None, str | None]
    where: Where
    verdict: Transport
    networks: tuple[str, ...]  # NCCL's own words, without the device: "NET/IB", "P2P/CUMEM", "SHM/direct"
    interfaces: tuple[str, ...]  # of sockets, if the log names them
    gpudirect: GpuDirect | None  # None if it doesn't apply (sockets, inside a host)
    edges: int  # distinct (sender, receiver, connection index)
    failed: bool = False  # it was set up, and the log reports that connecting failed


@dataclass(frozen=True, slots=True)
class CommunicatorVerdict:
    """The verdict on one communicator. `id` is NCCL's commId or the pointer that the first rank printed; None for
    edges that can't be assigned to a communicator. `hosts` are the hosts in the log, `nodes` is NCCL's own count.
    """

    id: str | None
    nranks: int | None
    ranks_seen: int
    nodes: int | None
    hosts: tuple[str, ...]
    verdict: Transport
    reason: str | None
    selected: tuple[str, ...]  # "Using network X": chosen for this communicator, which doesn't prove its use
    pairs: tuple[PairVerdict, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to "which transport did this job use?". `reason` is set exactly when the verdict is unknown."""

    verdict: Transport
    reason: str | None
    communicators: tuple[CommunicatorVerdict, ...]
    diagnostics: tuple[Diagnostic, ...]
    nccl_versions: tuple[str, ...]
    lines: int
    nccl_lines: int
    bytes: int
    sources: int

    def diagnostic(self, code: str) -> Diagnostic | None:
        """Returns the first diagnostic with this code, or None."""
        return next((d for d in self.diagnostics if d.code == code), None)

    def as_json(self) -> dict[str, Any]:
        """Returns plain data for `--format json`. The key `warnings` is for readers of earlier versions."""
        answer: dict[str, Any] = {"verdict": self.verdict.value}
        if self.reason is not None:
            answer["reason"] = self.reason
        answer["communicators"] = [_communicator_json(c) for c in self.communicators]
        answer["diagnostics"] = [d.as_json() for d in self.diagnostics]
        answer["warnings"] = legacy_warnings(self.diagnostics)
        answer["nccl_versions"] = list(self.nccl_versions)
        answer["read"] = {
            "sources": self.sources,
            "bytes": self.bytes,
            "lines": self.lines,
            "nccl_lines": self.nccl_lines,
        }
        return answer


def not_as_asked(verdict: Verdict, requested: Transport | str) -> Diagnostic | None:
    """Returns a diagnostic if a run asked for one transport and used another, else None.

    An unknown verdict doesn't confirm anything, so it gets the diagnostic too.

    Raises:
        ValueError: for an unknown name of a transport.
    """
    wanted = Transport(requested)
    if verdict.verdict is wanted:
        return None
    got = verdict.verdict.value
    why = f" ({verdict.reason})" if verdict.reason else ""
    return diagnostic("transport_not_as_asked", f"requested {wanted.value} and got {got}{why}")


def _communicator_json(c: CommunicatorVerdict) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "id": c.id,
        "nranks": c.nranks,
        "ranks_seen": c.ranks_seen,
        "nodes": c.nodes,
        "hosts": list(c.hosts),
        "verdict": c.verdict.value,
        "selected": list(c.selected),
        "pairs": [
            {
                "hosts": list(p.hosts),
                "where": p.where.value,
                "verdict": p.verdict.value,
                "networks": list(p.networks),
                "interfaces": list(p.interfaces),
                "gpudirect": p.gpudirect.value if p.gpudirect else None,
                "edges": p.edges,
                "failed": p.failed,
            }
            for p in c.pairs
        ],
    }
    if c.reason is not None:
        answer["reason"] = c.reason
    return answer
