"""InfiniBand, RoCE and EFA devices, and whether this process may use them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from wirecost.counters.infiniband import port_rate_Bps
from wirecost.doctor.finding import Finding, Level, Machine, counted

AREA = "rdma"


@dataclass(frozen=True, slots=True)
class Port:
    """One port of an RDMA device. `layer` is "InfiniBand", "Ethernet" (RoCE) or "EFA"."""

    device: str
    number: str
    active: bool
    state: str
    layer: str
    rate_bps: float | None
    bus_id: str | None

    @property
    def name(self) -> str:
        return f"{self.device}/{self.number}"


def ports_of(machine: Machine) -> list[Port]:
    found = []
    for device in machine.names("sys/class/infiniband"):
        base = f"sys/class/infiniband/{device}"
        directory = machine.root / base / "device"
        driver = (directory / "driver").resolve().name if (directory / "driver").exists() else ""
        for number in machine.names(f"{base}/ports"):
            state = (machine.text(f"{base}/ports/{number}/state") or "").partition(":")[2].strip() or "unknown"
            rate = port_rate_Bps(machine.root / base / "ports" / number)
            found.append(
                Port(
                    device,
                    number,
                    state == "ACTIVE",
                    state,
                    "EFA" if driver == "efa" else machine.text(f"{base}/ports/{number}/link_layer") or "unknown",
                    rate * 8 if rate else None,
                    directory.resolve().name if directory.exists() else None,
                )
            )
    return found


def usable(machine: Machine, ports: list[Port]) -> bool:
    """Whether NCCL in this process could open an active port."""
    return any(p.active for p in ports) and bool(_verbs_nodes(machine, writable=True))


def probe(machine: Machine, ports: list[Port]) -> Iterator[Finding]:
    if not ports:
        yield Finding(AREA, Level.NOTE, "no InfiniBand, RoCE or EFA device: between hosts NCCL uses TCP sockets")
        return
    for port in ports:
        kind = {"Ethernet": "RoCE", "InfiniBand": "InfiniBand"}.get(port.layer, port.layer)
        rate = f"{port.rate_bps / 1e9:g} Gb/s" if port.rate_bps else "rate unknown"
        if port.active:
            yield Finding(AREA, Level.OK, f"{port.name}: {kind}, {rate}, active")
        else:
            yield Finding(
                AREA,
                Level.NOTE if any(p.active for p in ports) else Level.PROBLEM,
                f"{port.name}: {kind}, {rate}, not active ({port.state})",
                "check cable and switch port (ibstat, ethtool); on InfiniBand a subnet manager must run",
            )
    rates = {p.rate_bps for p in ports if p.active and p.rate_bps}
    if len(rates) > 1:
        shown = ", ".join(f"{r / 1e9:g}" for r in sorted(rates))
        yield Finding(
            AREA,
            Level.WARNING,
            f"active ports differ in speed ({shown} Gb/s): a slow one among NCCL's rails holds up the others",
            "look for a degraded link (cable, lanes), or name the fast ones: NCCL_IB_HCA=mlx5_0,mlx5_1",
        )
    yield from _access(machine, ports)


def _verbs_nodes(machine: Machine, *, writable: bool) -> list[str]:
    nodes = [n for n in machine.names("dev/infiniband") if n.startswith("uverbs")]
    if writable and machine.live:
        nodes = [n for n in nodes if os.access(machine.root / "dev/infiniband" / n, os.R_OK | os.W_OK)]
    return nodes


def _access(machine: Machine, ports: list[Port]) -> Iterator[Finding]:
    nodes = _verbs_nodes(machine, writable=False)
    if not nodes:
        yield Finding(
            AREA,
            Level.PROBLEM,
            "the kernel has RDMA devices but /dev/infiniband/uverbs* isn't here: NCCL finds no device",
            "pass them into the container (docker: --device=/dev/infiniband; kubernetes: the RDMA device plugin), "
            "or load ib_uverbs on the host",
        )
        return
    open_ = _verbs_nodes(machine, writable=True)
    if not open_:
        yield Finding(
            AREA,
            Level.PROBLEM,
            "this user may not open /dev/infiniband/uverbs*: NCCL finds no device",
            "chmod or a udev rule (rdma-core ships one), or run with the group that owns them",
        )
    elif len(nodes) < len({p.device for p in ports}):
        yield Finding(
            AREA,
            Level.WARNING,
            f"only {counted(len(nodes), 'device')} of {len({p.device for p in ports})} can be opened here",
            "pass all of /dev/infiniband into the container",
        )
