"""Counts of the TCP segments that emulated hosts sent and retransmitted."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from wirecost.emulation.hosts import EmulatedHosts

SNMP = Path("/proc/thread-self/net/snmp")


class Segments(BaseModel):
    """Numbers of sent and retransmitted TCP segments: OutSegs and RetransSegs of RFC 4022, section 3."""

    model_config = ConfigDict(frozen=True)

    sent: NonNegativeInt
    retransmitted: NonNegativeInt

    def since(self, earlier: Segments) -> Segments:
        """Returns the numbers of segments after an earlier count."""
        return Segments(sent=self.sent - earlier.sent, retransmitted=self.retransmitted - earlier.retransmitted)


def read_segments(snmp: Path = SNMP) -> Segments | None:
    """Reads the counts of the calling thread's network namespace. Returns None if the kernel doesn't report
    them."""
    try:
        names, values = (line.split()[1:] for line in snmp.read_text().splitlines() if line.startswith("Tcp:"))
        counts = dict(zip(names, values, strict=True))
        return Segments(sent=int(counts["OutSegs"]), retransmitted=int(counts["RetransSegs"]))
    except (OSError, ValueError, KeyError):
        return None


def read_segments_of_hosts(hosts: EmulatedHosts) -> Segments | None:
    """Reads the counts of all hosts together. Returns None if the kernel doesn't report those of a host."""
    sent = retransmitted = 0
    for host in range(hosts.count):
        with hosts.inside(host):
            segments = read_segments()
        if segments is None:
            return None
        sent, retransmitted = sent + segments.sent, retransmitted + segments.retransmitted
    return Segments(sent=sent, retransmitted=retransmitted)
