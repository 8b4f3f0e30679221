"""What counted errors and congestion of RDMA ports mean, and what helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from wirecost.counters.rdma_events import GROUP_OF, KIND, Group
from wirecost.counters.rows import DeviceSummary
from wirecost.diagnostics import Diagnostic, Severity, diagnostic

LEAST_WAIT = 0.001
MUCH_WAIT = 0.01
"""Shares of the link's time below which waiting isn't mentioned, and from which it is a warning."""

MANY_NOTIFICATIONS_PER_S = 100
"""Fewer are how congestion control works; from here on they are a warning."""


CODES = {
    Group.LINK: "rdma_link_errors",
    Group.LOST: "rdma_packets_lost",
    Group.NOT_READY: "rdma_receiver_not_ready",
    Group.FAILED: "rdma_operations_failed",
    Group.CONGESTION: "rdma_congestion",
    Group.WAIT: "rdma_transmit_wait",
}
_WORDS = {
    Group.LINK: "errors on the link",
    Group.LOST: "packets lost, repeated or out of order",
    Group.NOT_READY: "messages that found no buffer at the receiver",
    Group.FAILED: "operations that failed",
    Group.CONGESTION: "congestion notifications or marks: senders were slowed down",
    Group.WAIT: "time in which data waited and none could be sent",
}


def during(events: Mapping[str, int], device: str, seconds: float, link_Bps: float | None) -> Iterator[Diagnostic]:
    """Yields what a port counted during `seconds`.

    Args:
        events: counts by counter's name.
        link_Bps: the port's nominal rate in one direction; None is not known.
    """
    for group, names in _by_group(events):
        what = _WORDS[group]
        shown = ", ".join(f"{name} {events[name]}" for name in names)
        if group is Group.WAIT:
            # A tick is 1 to 256 times what one lane needs for a byte (InfiniBand, PortSamplesControl), so that the
            # port could have sent a byte at least in each.
            share = events[names[0]] / (link_Bps * seconds) if link_Bps and seconds > 0 else None
            if share is None or share < LEAST_WAIT:
                continue
            message = f"{what}: at least {100 * min(share, 1.0):.2g} % of the link's ({shown} ticks)"
            severity = Severity.WARNING if share >= MUCH_WAIT else Severity.INFO
            yield diagnostic(CODES[group], message, severity=severity, subject=device)
            continue
        count = sum(events[name] for name in names)
        many = group is not Group.CONGESTION or count >= MANY_NOTIFICATIONS_PER_S * seconds
        severity = Severity.WARNING if many else Severity.INFO
        yield diagnostic(CODES[group], f"{what}: {shown}", severity=severity, subject=device, count=count)


def since_start(events: Mapping[str, int], device: str) -> Iterator[Diagnostic]:
    """Yields what a port has counted since its driver was loaded, which may be long ago. All of it is `INFO`."""
    for group, names in _by_group(events):
        if group is Group.WAIT:
            continue
        what = _WORDS[group]
        shown = ", ".join(f"{name} {events[name]}" for name in names)
        yield diagnostic(
            CODES[group],
            f"{what}, since the driver was loaded: {shown}",
            severity=Severity.INFO,
            subject=device,
            count=sum(events[name] for name in names),
        )


def of_summary(summary: Sequence[DeviceSummary]) -> list[Diagnostic]:
    """Returns the diagnostics of a whole recording."""
    return [
        finding
        for device in summary
        if device.kind == KIND
        for finding in during(dict(device.events), device.device, device.seconds, device.link_Bps)
    ]


def _by_group(events: Mapping[str, int]) -> Iterable[tuple[Group, list[str]]]:
    """Yields the counters that counted anything, by group."""
    for group in Group:
        names = [name for name, count in events.items() if count > 0 and GROUP_OF.get(name) is group]
        if names:
            yield group, names
