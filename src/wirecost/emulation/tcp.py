"""TCP of the hosts of an emulated network: its congestion control, and its own account of what it sent again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, NonNegativeInt

if TYPE_CHECKING:
    from wirecost.emulation.hosts import EmulatedHosts

CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
USUAL = ("cubic", "reno")
"""CUBIC is Linux's usual congestion control. Where a machine permits namespaces its own default and Reno only, it
is Reno, which CUBIC behaves like at a cluster's short round trips (RFC 9438, section 4.3). What another default
makes of a link says nothing about networks: BBR reaches a third of Reno's rate between namespaces
(docs/emulation.md)."""
SNMP = Path("/proc/thread-self/net/snmp")


def use_usual_control(path: Path = CONTROL) -> str | None:
    """Of the network that the calling thread is in; gives what connections will use, None where the kernel doesn't
    tell."""
    for name in USUAL:
        try:
            path.write_text(name)
            break
        except OSError:
            continue
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


class Segments(BaseModel):
    """OutSegs and RetransSegs of RFC 4022, section 3."""

    model_config = ConfigDict(frozen=True)

    sent: NonNegativeInt
    retransmitted: NonNegativeInt

    def since(self, earlier: Segments) -> Segments:
        return Segments(sent=self.sent - earlier.sent, retransmitted=self.retransmitted - earlier.retransmitted)


def read_segments(snmp: Path = SNMP) -> Segments | None:
    """Of the network that the calling thread is in; None where the kernel doesn't tell."""
    try:
        names, values = (line.split()[1:] for line in snmp.read_text().splitlines() if line.startswith("Tcp:"))
        counts = dict(zip(names, values, strict=True))
        return Segments(sent=int(counts["OutSegs"]), retransmitted=int(counts["RetransSegs"]))
    except (OSError, ValueError, KeyError):
        return None


def of_hosts(hosts: EmulatedHosts) -> Segments | None:
    """Of all hosts together; None where one's aren't known."""
    sent = retransmitted = 0
    for host in range(hosts.count):
        with hosts.inside(host):
            found = read_segments()
        if found is None:
            return None
        sent, retransmitted = sent + found.sent, retransmitted + found.retransmitted
    return Segments(sent=sent, retransmitted=retransmitted)
