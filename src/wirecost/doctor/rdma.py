"""InfiniBand, RoCE and EFA devices, and whether this process may use them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from wirecost.counters.infiniband import port_rate_Bps
from wirecost.diagnostics import Diagnostic, Severity, diagnostic
from wirecost.doctor.machine import Machine, counted


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


def probe(machine: Machine, ports: list[Port]) -> Iterator[Diagnostic]:
    if not ports:
        yield diagnostic(
            "no_rdma_device",
            "no InfiniBand, RoCE or EFA device: between hosts NCCL uses TCP sockets",
        )
        return
    for port in ports:
        kind = {"Ethernet": "RoCE", "InfiniBand": "InfiniBand"}.get(port.layer, port.layer)
        rate = f"{port.rate_bps / 1e9:g} Gb/s" if port.rate_bps else "rate unknown"
        if port.active:
            yield diagnostic(
                "rdma_port_active",
                f"{port.name}: {kind}, {rate}, active",
            )
        else:
            yield diagnostic(
                "rdma_port_inactive",
                f"{port.name}: {kind}, {rate}, not active ({port.state})",
                severity=Severity.INFO if any(p.active for p in ports) else Severity.ERROR,
            )
    rates = {p.rate_bps for p in ports if p.active and p.rate_bps}
    if len(rates) > 1:
        shown = ", ".join(f"{r / 1e9:g}" for r in sorted(rates))
        yield diagnostic(
            "rdma_rates_differ",
            f"active ports differ in speed ({shown} Gb/s): a slow one among NCCL's rails holds up the others",
        )
    yield from _access(machine, ports)


def _verbs_nodes(machine: Machine, *, writable: bool) -> list[str]:
    nodes = [n for n in machine.names("dev/infiniband") if n.startswith("uverbs")]
    if writable and machine.live:
        nodes = [n for n in nodes if os.access(machine.root / "dev/infiniband" / n, os.R_OK | os.W_OK)]
    return nodes


def _access(machine: Machine, ports: list[Port]) -> Iterator[Diagnostic]:
    nodes = _verbs_nodes(machine, writable=False)
    if not nodes:
        yield diagnostic(
            "verbs_missing",
            "the kernel has RDMA devices but /dev/infiniband/uverbs* isn't here: NCCL finds no device",
        )
        return
    open_ = _verbs_nodes(machine, writable=True)
    if not open_:
        yield diagnostic(
            "verbs_not_permitted",
            "this user may not open /dev/infiniband/uverbs*: NCCL finds no device",
        )
    elif len(nodes) < len({p.device for p in ports}):
        yield diagnostic(
            "verbs_partly_missing",
            f"only {counted(len(nodes), 'device')} of {len({p.device for p in ports})} can be opened here",
        )
