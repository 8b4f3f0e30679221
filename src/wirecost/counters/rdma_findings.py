"""What counted errors and congestion of RDMA ports mean, and what helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirecost.counters.rdma_events import GROUP_OF, KIND, Group
from wirecost.counters.rows import DeviceSummary

LEAST_WAIT = 0.001
MUCH_WAIT = 0.01
"""Shares of the link's time below which waiting isn't mentioned, and from which it is a warning."""

MANY_NOTIFICATIONS_PER_S = 100
"""Fewer are how congestion control works; from here on they are a warning."""


@dataclass(frozen=True, slots=True)
class RdmaFinding:
    """One remark on a port. `grave` is what costs speed now or ends a job."""

    device: str
    group: Group
    grave: bool
    message: str
    remedy: str


_MEANING = {
    Group.LINK: (
        "errors on the link",
        "clean or replace cable or transceiver; mlxlink and ibdiagnet (InfiniBand) or ethtool -S (RoCE) tell more",
    ),
    Group.LOST: (
        "packets lost, repeated or out of order",
        "RoCE: check that PFC or ECN is on along the whole path; InfiniBand with adaptive routing counts "
        "out_of_sequence without loss",
    ),
    Group.NOT_READY: (
        "messages that found no buffer at the receiver",
        "the receiving host is too slow to post buffers: look for a busy or throttled CPU there",
    ),
    Group.FAILED: (
        "operations that failed",
        "the NCCL log of this run names status and peer (wirecost transport LOG); see whether the peer still runs",
    ),
    Group.CONGESTION: (
        "congestion notifications or marks: senders were slowed down",
        "look for many senders to one receiver, and ECN thresholds of the switches",
    ),
    Group.WAIT: (
        "time in which data waited and none could be sent",
        "congestion behind this port: a slow receiver, PAUSE frames, or routes that share a link",
    ),
}


def during(
    events: Mapping[str, int], device: str, seconds: float, link_Bps: float | None
) -> Iterator[RdmaFinding]:
    """Yields what a port counted during `seconds`.

    Args:
        events: counts by counter's name.
        link_Bps: the port's nominal rate in one direction; None is not known.
    """
    for group, names in _by_group(events):
        what, remedy = _MEANING[group]
        shown = ", ".join(f"{name} {events[name]}" for name in names)
        if group is Group.WAIT:
            # A tick is 1 to 256 times what one lane needs for a byte (InfiniBand, PortSamplesControl), so that the
            # port could have sent a byte at least in each.
            share = events[names[0]] / (link_Bps * seconds) if link_Bps and seconds > 0 else None
            if share is None or share < LEAST_WAIT:
                continue
            message = f"{what}: at least {100 * min(share, 1.0):.2g} % of the link's ({shown} ticks)"
            yield RdmaFinding(device, group, share >= MUCH_WAIT, message, remedy)
            continue
        count = sum(events[name] for name in names)
        grave = group is not Group.CONGESTION or count >= MANY_NOTIFICATIONS_PER_S * seconds
        yield RdmaFinding(device, group, grave, f"{what}: {shown}", remedy)


def since_start(events: Mapping[str, int], device: str) -> Iterator[RdmaFinding]:
    """Yields what a port has counted since its driver was loaded, which may be long ago. None of it is grave."""
    for group, names in _by_group(events):
        if group is Group.WAIT:
            continue
        what, remedy = _MEANING[group]
        shown = ", ".join(f"{name} {events[name]}" for name in names)
        yield RdmaFinding(device, group, False, f"{what}, since the driver was loaded: {shown}", remedy)


def of_summary(summary: Sequence[DeviceSummary]) -> list[RdmaFinding]:
    """Returns the findings of a whole recording."""
    return [
        finding
        for device in summary
        if device.kind == KIND
        for finding in during(dict(device.events), device.device, device.seconds, device.link_Bps)
    ]


def _by_group(events: Mapping[str, int]) -> Iterable[tuple[Group, list[str]]]:
    """Returns the counters that counted anything, by group."""
    for group in Group:
        names = [name for name, count in events.items() if count > 0 and GROUP_OF.get(name) is group]
        if names:
            yield group, names
