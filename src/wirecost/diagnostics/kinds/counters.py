"""Codes of network counters."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.COUNTERS, meaning, remedy)


KINDS = (
    _kind(
        "filter_matches_nothing",
        Severity.WARNING,
        "A pattern of --only matches no device. The recording holds only the devices of the other patterns.",
        "name devices that the message lists",
    ),
    _kind(
        "rdma_congestion",
        Severity.INFO,
        "An RDMA port counted congestion notifications or marks: senders were slowed down. A few are how "
        "congestion control works; many cost bandwidth.",
        "look for many senders to one receiver, and ECN thresholds of the switches",
    ),
    _kind(
        "rdma_link_errors",
        Severity.WARNING,
        "An RDMA port counted errors on its link. Damaged packets are sent again, which costs bandwidth.",
        "clean or replace cable or transceiver; mlxlink and ibdiagnet (InfiniBand) or ethtool -S (RoCE) show more",
    ),
    _kind(
        "rdma_operations_failed",
        Severity.WARNING,
        "An RDMA port counted operations that failed. The job that issued them usually ends.",
        "find status and peer in the NCCL log of this run (wirecost transport LOG), and check that the peer runs",
    ),
    _kind(
        "rdma_packets_lost",
        Severity.WARNING,
        "An RDMA port counted packets that were lost, repeated or out of order. Loss costs much bandwidth on "
        "RoCE.",
        "RoCE: check that PFC or ECN is on along the whole path; InfiniBand with adaptive routing counts "
        "out_of_sequence without loss",
    ),
    _kind(
        "rdma_receiver_not_ready",
        Severity.WARNING,
        "Messages found no buffer at the receiver. The sender waits and tries again.",
        "the receiving host is too slow to post buffers: look for a busy or throttled CPU there",
    ),
    _kind(
        "rdma_transmit_wait",
        Severity.WARNING,
        "An RDMA port had data to send but could not send it for part of the time. The path behind the port "
        "limits the bandwidth.",
        "look for congestion behind this port: a slow receiver, PAUSE frames, or routes that share a link",
    ),
)
