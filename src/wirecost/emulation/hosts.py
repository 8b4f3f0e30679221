"""Emulated hosts: a network namespace for each, joined by one switch, every link shaped in both directions.

The namespaces have no names: they exist while this process holds them open, and vanish with it.
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
from wirecost.emulation.tcp import use_usual_control
from wirecost.errors import UnsupportedError
from wirecost.spec.network import Emulation
from wirecost.units import format_rate_bps

if TYPE_CHECKING:
    from pyroute2 import IPRoute

INTERFACE = "eth0"
MTU = 9000

# A token bucket passes a message that fits into it unshaped, so it is kept to a few milliseconds of the rate. With
# less than two segments as the kernel hands them over (64 KiB) it would shape under its rate, and so it does when
# the machine stands still for longer than the bucket lasts, as a virtual machine on a busy host may.
BURST_S = 2e-3
MIN_BURST_BYTES = 128 << 10
MAX_SHAPED_Bps = 2**32 - 1
"""The `rate` of struct tc_ratespec is 32 bits wide (include/uapi/linux/pkt_sched.h)."""

QUEUE = "50ms"
"""How long a packet may wait in the shaper: a switch buffer deep enough for TCP to fill the link."""


def burst_bytes(rate_bps: float) -> int:
    """The bucket of a shaper: messages up to this size pass unshaped."""
    return max(MIN_BURST_BYTES, int(rate_bps / 8 * BURST_S))


class EmulatedHosts(Closing):
    """Hosts 0..n-1, each with an interface `eth0` and the address 10.77.h.1, on one switch.
    `congestion_control` is their TCP's; `in_order` whether packets are kept in order through shapers, None where
    that isn't tried: without shapers, and on few cores.

    To be made by a single-threaded process that may create namespaces (see `isolate`).

    Raises:
        UnsupportedError: for what the kernel lacks (bridge, veth, tbf, netem), with what to do.
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
        return f"10.77.{host}.1"

    def enter(self, host: int) -> None:
        """Makes this process part of a host for good, with a host name of its own; for a child before its work."""
        setns(self._namespaces[host], CLONE_NEWNET)
        # Communication libraries tell hosts apart by name too, and so do people who read their logs.
        unshare(CLONE_NEWUTS)
        socket.sethostname(_name(host))

    @contextmanager
    def inside(self, host: int) -> Iterator[None]:
        """The calling thread is in a host's network meanwhile: sockets that it opens belong there."""
        setns(self._namespaces[host], CLONE_NEWNET)
        try:
            yield
        finally:
            setns(self._home, CLONE_NEWNET)

    @contextmanager
    def at_switch(self) -> Iterator[list[str]]:
        """As `inside`, but in the switch. Gives its interfaces, each named after the host that it leads to."""
        with self.inside(self.count):
            yield [_name(host) for host in range(self.count)]

    def close(self) -> None:
        """Lets go of the namespaces; the kernel removes each with its last process."""
        for fd in self._namespaces:
            os.close(fd)
        self._namespaces = []

    def _build(self) -> None:
        from pyroute2 import IPRoute

        for _ in range(self.count + 1):
            unshare(CLONE_NEWNET)
            self._namespaces.append(_current_namespace())
        # The last one is the switch, in which we are now.
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
                # A training job is silent on the network while it computes: TCP would forget the link's
                # speed each time and ramp up anew, which cluster hosts are set not to do either.
                Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").write_text("0")
                # Nor does it say anything about a network how this machine's own default paces.
                self.congestion_control = use_usual_control()
        shaped = self.emulation.rate is not None or self.emulation.delay is not None
        if shaped and (os.cpu_count() or 1) > FEW_CORES:
            self.in_order = steer(self._namespaces)

    def _shape(self, netlink: IPRoute, index: int) -> None:
        """Shapes what leaves an interface: at the host's end its sending, at the switch's its receiving."""
        rate, delay = self.emulation.rate, self.emulation.delay
        if rate is not None:
            if rate / 8 > MAX_SHAPED_Bps:
                raise UnsupportedError(
                    f"a link can't be shaped to {format_rate_bps(rate)}: the kernel's token bucket counts to "
                    f"{format_rate_bps(MAX_SHAPED_Bps * 8, 3)}; leave 'rate' out for the machine's own speed"
                )
            # pyroute2 takes bytes per second as a number.
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
