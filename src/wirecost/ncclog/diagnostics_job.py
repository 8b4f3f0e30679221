"""The diagnostics on a whole job: failures, restarts, different versions, devices, in-network reduction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.ncclog.edges import JudgedEdge, transport_of
from wirecost.ncclog.result import Transport

if TYPE_CHECKING:
    from wirecost.ncclog.attempts import Attempts
    from wirecost.ncclog.state import LogState


def failures(state: LogState, every: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields diagnostics on failures, and on whether the edges are still proof of a transport."""
    if not state.failures:
        return
    first = state.failures[0]
    more = f" (and {len(state.failures) - 1} more)" if len(state.failures) > 1 else ""
    where = f" on {first.host}" if first.host else ""
    words = f"{first.words}{where}{more}"
    if state.completed_before:
        yield diagnostic(
            "failed_later",
            f"{words}, after collectives had completed: the verdict describes the transport until then",
        )
    elif any(e.failure is not None for e in every):
        yield diagnostic(
            "connection_failed",
            f"{words}; NCCL prints a connection before it connects, so the log doesn't prove that any data was "
            "sent over it",
        )
    else:
        yield diagnostic("failure_elsewhere", f"{words}; it doesn't concern the connections behind the verdict")


def several_attempts(attempts: Attempts, every: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields a diagnostic if one log has several consecutive jobs, with the transport of the last one."""
    if attempts.count < 2:
        return
    last = transport_of([e for e in every if attempts.is_last(e.process) and e.failure is None])
    before = transport_of([e for e in every if not attempts.is_last(e.process)])
    yield diagnostic(
        "several_attempts",
        f"the log holds {attempts.count} jobs or attempts of one, one after another: {before.value} before, "
        f"{last.value} in the last",
        count=attempts.count,
    )


def versions(state: LogState) -> Iterator[Diagnostic]:
    """Yields a diagnostic if one job has several versions of the library."""
    names = [v for v in state.versions if not any(w != v and w.startswith(f"{v}+") for w in state.versions)]
    if len(names) > 1:
        yield diagnostic(
            "versions_differ",
            f"ranks use different versions ({', '.join(names)}): NCCL of different versions can hang or corrupt "
            "results",
        )


def devices(state: LogState, between: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields diagnostics on RDMA devices of one host that differ in GPUDirect, and on those that NCCL couldn't
    open.
    """
    by_host: dict[str, dict[int, set[bool]]] = defaultdict(lambda: defaultdict(set))
    for e in between:
        host = e.process.host
        if e.base is Transport.RDMA and e.edge.net_device is not None and e.edge.gdr is not None and host:
            by_host[host][e.edge.net_device].add(e.edge.gdr)
    for host, used in sorted(by_host.items()):
        direct = sorted(d for d, ways in used.items() if ways == {True})
        staged = sorted(d for d, ways in used.items() if ways == {False})
        if direct and staged:
            yield diagnostic(
                "gdr_differs_by_nic",
                f"on {host} NIC {_listed(staged)} is used without GPUDirect and NIC {_listed(direct)} with it: "
                "channels over the former slow down all others",
            )
    if state.unopened:
        names = ", ".join(f"{name} on {host or '?'}" for host, name in sorted(state.unopened, key=str)[:8])
        yield diagnostic(
            "ib_device_not_opened",
            f"NCCL could not open the RDMA device {names}: that host has fewer NICs than the others, which a ring "
            "waits for",
        )


def in_network_reduction(every: list[JudgedEdge]) -> Iterator[Diagnostic]:
    """Yields a diagnostic if switches perform reductions."""
    names = sorted({e.edge.network for e in every if e.edge.kind == "COLLNET" and e.failure is None})
    if names:
        yield diagnostic(
            "in_network_reduction",
            f"CollNet is set up over {', '.join(names)}: switches reduce what collectives send, so that bus "
            "bandwidth isn't the links' traffic",
        )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
