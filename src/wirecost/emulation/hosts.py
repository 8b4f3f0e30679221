"""Emulated hosts: network namespaces on one switch, with every link shaped in both directions.

The namespaces have no names. They exist as long as this process holds them open, and end with it.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.closing import Closing
from wirecost.emulation.kernel import CLONE_NEWNET, CLONE_NEWUTS, setns, unshare
from wirecost.emulation.steering import FEW_CORES, steer
from wirecost.emulation.tcp import set_congestion_control
from wirecost.errors import UnsupportedError
from wirecost.spec.network import Emulation
from wirecost.units import format_rate_bps

if TYPE_CHECKING:
    from pyroute2 import IPRoute

INTERFACE = "eth0"
MTU = 9000

BURST_S = 2e-3
"""Size of a shaper's token bucket, as a time at the shaper's rate.

A message that fits into the bucket passes unshaped, so the bucket is small. The shaper falls below its rate
when the machine pauses for longer than the bucket lasts, as a virtual machine on a busy host may.
"""
MIN_BURST_BYTES = 128 << 10
"""Smallest token bucket: two segments as the kernel hands them over (64 KiB). A smaller bucket falls below its
rate."""
MAX_SHAPED_Bps = 2**32 - 1
"""Highest rate of a token bucket. The `rate` of struct tc_ratespec has 32 bits
(include/uapi/linux/pkt_sched.h)."""

QUEUE = "50ms"
"""Longest time that a packet waits in the shaper. It acts as a switch buffer in which TCP can fill the link."""


def burst_bytes(rate_bps: float) -> int:
    """Returns the size of a shaper's token bucket in bytes. Messages up to this size pass unshaped."""
    return max(MIN_BURST_BYTES, int(rate_bps / 8 * BURST_S))


class EmulatedHosts(Closing):
    """Hosts 0..n-1 on one switch. Host h has an interface `eth0` with the address 10.77.h.1.

    Only a single-threaded process that may create namespaces can create them (see `wirecost.launch.isolate`).

    Attributes:
        congestion_control: the TCP congestion control of the hosts, or None if the kernel doesn't report it.
        in_order: whether packets keep their order through shapers. None if this isn't attempted, which is the case
            without shapers and on few cores.

    Raises:
        UnsupportedError: if the kernel lacks a part (bridge, veth, tbf, netem). The message says what to do.
    """

    def __init__(self, count: int, emulation: Emulation) -> None:
        self.count = count
        self.emulation = emulation
        self.congestion_control: str | None = None
        self.in_order: bool | None = None
        self._namespaces: list[int] = []
        self._home = _current_namespace()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        finally:
            setns(self._home, CLONE_NEWNET)

    @staticmethod
    def address(host: int) -> str:
        """Returns a host's IPv4 address."""
        return f"10.77.{host}.1"

    def enter(self, host: int) -> None:
        """Moves this process to a host permanently, and sets the host name. A child calls it before its work."""
        setns(self._namespaces[host], CLONE_NEWNET)
        # Communication libraries distinguish hosts by name too, and so do readers of their logs.
        unshare(CLONE_NEWUTS)
        socket.sethostname(_name(host))

    @contextmanager
    def inside(self, host: int) -> Iterator[None]:
        """Moves the calling thread to a host's network for the context. Sockets that it opens belong to that
        host."""
        setns(self._namespaces[host], CLONE_NEWNET)
        try:
            yield
        finally:
            setns(self._home, CLONE_NEWNET)

    @contextmanager
    def at_switch(self) -> Iterator[list[str]]:
        """Moves the calling thread to the switch for the context.

        Yields:
            The switch's interfaces in the order of the hosts, each named after the host that it leads to.
        """
        with self.inside(self.count):
            yield [_name(host) for host in range(self.count)]

    def close(self) -> None:
        """Closes the namespaces. The kernel removes each of them when its last process ends."""
        for fd in self._namespaces:
            os.close(fd)
        self._namespaces = []

    def _build(self) -> None:
        from pyroute2 import IPRoute

        for _ in range(self.count + 1):
            unshare(CLONE_NEWNET)
            self._namespaces.append(_current_namespace())
        # The last namespace is the switch's. This thread is in it now.
        *hosts, _ = self._namespaces
        with IPRoute() as switch:
            bridge = _add_link(switch, "wirecost", kind="bridge", mtu=MTU)
            for host, namespace in enumerate(hosts):
                peer = {"ifname": INTERFACE, "net_ns_fd": namespace, "mtu": MTU}
                port = _add_link(switch, _name(host), kind="veth", mtu=MTU, peer=peer)
                switch.link("set", index=port, master=bridge, state="up")
                self._shape(switch, port)
            switch.link("set", index=bridge, state="up")
        for host in range(self.count):
            with self.inside(host), IPRoute() as inner:
                (index,) = list(inner.link_lookup(ifname=INTERFACE))
                inner.addr("add", index=index, address=self.address(host), prefixlen=16)
                inner.link("set", index=index, state="up")
                inner.link("set", index=next(iter(inner.link_lookup(ifname="lo"))), state="up")
                self._shape(inner, index)
                # A training job sends nothing while it computes. By default, TCP would then forget the link's
                # rate and start slowly again. Hosts of clusters are configured not to do that.
                Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").write_text("0")
                # The result must not depend on this machine's default congestion control.
                self.congestion_control = set_congestion_control()
        shaped = self.emulation.rate is not None or self.emulation.delay is not None
        if shaped and (os.cpu_count() or 1) > FEW_CORES:
            self.in_order = steer(self._namespaces)

    def _shape(self, netlink: IPRoute, index: int) -> None:
        """Shapes what leaves an interface: a host's sending at its own end, its receiving at the switch's end."""
        rate, delay = self.emulation.rate, self.emulation.delay
        if rate is not None:
            if rate / 8 > MAX_SHAPED_Bps:
                raise UnsupportedError(
                    f"a link can't be shaped to {format_rate_bps(rate)}: the kernel's token bucket counts to "
                    f"{format_rate_bps(MAX_SHAPED_Bps * 8, 3)}; leave 'rate' out for the machine's own speed"
                )
            # pyroute2 takes the rate as a number of bytes per second.
            _add_qdisc(netlink, "tbf", index, rate=int(rate / 8), burst=burst_bytes(rate), latency=QUEUE)
        if delay is not None:
            parent = {"parent": 0x10000} if rate is not None else {}
            _add_qdisc(netlink, "netem", index, delay=round(delay * 1e6 / 2), limit=100_000, **parent)


def _name(host: int) -> str:
    return f"host{host}"


def _current_namespace() -> int:
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _add_link(netlink: IPRoute, name: str, *, kind: str, **options: Any) -> int:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        netlink.link("add", ifname=name, kind=kind, **options)
    except NetlinkError as error:
        raise UnsupportedError(_no_kernel_part(kind, error.code)) from error
    return next(iter(netlink.link_lookup(ifname=name)))


def _add_qdisc(netlink: IPRoute, kind: str, index: int, **options: Any) -> None:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        handle = {} if "parent" in options else {"handle": 0x10000}
        netlink.tc("add", kind, index, **handle, **options)
    except NetlinkError as error:
        raise UnsupportedError(_no_kernel_part(kind, error.code)) from error


def _no_kernel_part(kind: str, code: int | None) -> str:
    module = {"bridge": "bridge", "veth": "veth", "tbf": "sch_tbf", "netem": "sch_netem"}[kind]
    purpose = {"bridge": "a switch", "veth": "links", "tbf": "shaping", "netem": "delay"}[kind]
    if code in (errno.EOPNOTSUPP, errno.ENOENT):
        remedy = f"load it as root: modprobe {module}"
        if kind == "netem":
            remedy += "; where the kernel has none, leave the network's 'delay' out"
        return f"{purpose} between emulated hosts needs the kernel's '{module}', which is missing; {remedy}"
    reason = os.strerror(code) if code else "unknown error"
    return f"the kernel refused {purpose} between emulated hosts ('{kind}': {reason})"
