"""Checks network interfaces: speed, MTU, state, and which ones NCCL's sockets would use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wirecost.counters.ethernet import link_speed_Bps
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.machine import Machine
from wirecost.ncclog.plugins import is_ipoib, is_virtual

_FAST_bps = 25e9  # from here on 1,500-byte frames cost a sender too much processor time
_JUMBO = 9000


@dataclass(frozen=True, slots=True)
class Nic:
    """One network interface. `speed_bps` is None if the interface doesn't report it (it is down, or virtual)."""

    name: str
    up: bool
    mtu: int | None
    speed_bps: float | None
    physical: bool
    bus_id: str | None = None
    enslaved: bool = False

    @property
    def ipoib(self) -> bool:
        return is_ipoib(self.name)


def nics_of(machine: Machine) -> list[Nic]:
    interfaces = []
    for name in machine.names("sys/class/net"):
        base = f"sys/class/net/{name}"
        if not machine.exists(f"{base}/mtu"):
            continue
        speed = link_speed_Bps(machine.root / base)
        device = machine.root / base / "device"
        interfaces.append(
            Nic(
                name,
                machine.text(f"{base}/operstate") in ("up", "unknown"),
                machine.number(f"{base}/mtu"),
                speed * 8 if speed else None,
                device.exists(),
                device.resolve().name if device.exists() else None,
                machine.exists(f"{base}/master"),
            )
        )
    return interfaces


def socket_interfaces(nics: list[Nic], environment: str | None = None) -> list[Nic]:
    """Returns the interfaces that NCCL's sockets would use, in NCCL's order: NCCL_SOCKET_IFNAME, else ib*, else
    any but docker*, lo and virbr*, else docker*, lo, virbr* (NCCL 2.30, src/misc/socket.cc, ncclFindInterfaces).
    """
    usable = [n for n in nics if n.up and not n.enslaved]  # part of a bond or bridge, without an address
    if environment:
        exclude, exact = environment.startswith("^"), environment.lstrip("^").startswith("=")
        prefixes = [part for part in environment.lstrip("^=").split(",") if part]

        def matches(nic: Nic) -> bool:
            return any(nic.name == p if exact else nic.name.startswith(p) for p in prefixes)

        return [n for n in usable if matches(n) != exclude]
    last = ("docker", "lo", "virbr")
    steps = [[n for n in usable if n.name.startswith("ib")], [n for n in usable if not n.name.startswith(last)]]
    steps += [[n for n in usable if n.name.startswith(name)] for name in last]
    return next((chosen for chosen in steps if chosen), [])


def probe(machine: Machine, nics: list[Nic]) -> Iterator[Diagnostic]:
    real = [n for n in nics if n.physical]
    if not real:
        yield diagnostic(
            "no_physical_nic",
            "no physical network interface here (a container or a virtual machine?)",
        )
    for nic in real:
        speed = f"{nic.speed_bps / 1e9:g} Gb/s" if nic.speed_bps else "speed unknown"
        state = "up" if nic.up else "down"
        yield diagnostic("nic_up" if nic.up else "nic_down", f"{nic.name}: {speed}, MTU {nic.mtu}, {state}")
        if nic.up and nic.speed_bps and nic.speed_bps >= _FAST_bps and (nic.mtu or 0) < _JUMBO and not nic.ipoib:
            yield diagnostic(
                "mtu_small",
                f"{nic.name} ({nic.speed_bps / 1e9:g} Gb/s) has an MTU of {nic.mtu}: sockets won't fill it",
                remedy=f"set the MTU to 9000 on all hosts and switches in between: ip link set {nic.name} mtu "
                "9000",
            )
        if nic.up and nic.ipoib and (nic.mtu or 0) < 4092:
            yield diagnostic(
                "ipoib_datagram_mode",
                f"{nic.name}: IPoIB in datagram mode with an MTU of {nic.mtu}",
                remedy="use connected mode if the driver has it (echo connected > "
                f"/sys/class/net/{nic.name}/mode), or an MTU of 4092",
            )
    requested = machine.environment.get("NCCL_SOCKET_IFNAME")
    chosen = socket_interfaces(nics, requested)
    if requested and not chosen:
        yield diagnostic(
            "socket_interface_not_matched",
            f"NCCL_SOCKET_IFNAME={requested} matches no interface that is up: NCCL will refuse to start",
            remedy=f"name one of: {', '.join(n.name for n in nics if n.up)}",
        )
    elif chosen:
        virtual = [n.name for n in chosen if is_virtual(n.name)]
        if virtual and len(chosen) > len(virtual):
            yield diagnostic(
                "socket_interfaces_virtual",
                f"NCCL's sockets would stripe over {', '.join(virtual)} too, which leads to no other host",
                remedy=f"export NCCL_SOCKET_IFNAME=={next(n.name for n in chosen if n.name not in virtual)}",
            )
