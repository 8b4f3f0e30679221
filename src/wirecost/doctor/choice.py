"""Predicts which transport NCCL would use on this machine, and the obstacles to a better one."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.doctor import gpudirect, rdma
from wirecost.doctor.gpus import Gpu
from wirecost.doctor.machine import Machine
from wirecost.doctor.nccl_values import is_on
from wirecost.doctor.nics import Nic, socket_interfaces
from wirecost.doctor.rdma import Port
from wirecost.ncclog.result import Transport


@dataclass(frozen=True, slots=True)
class Choice:
    """The predicted transport. Only the log of a run proves the transport (`wirecost transport`)."""

    between_hosts: Transport
    between_why: str
    inside_host: Transport | None  # None for fewer than two GPUs
    inside_why: str


def choose(machine: Machine, gpus: list[Gpu], nics: list[Nic], ports: list[Port]) -> Choice:
    between, why = _between(machine, gpus, nics, ports)
    inside, inside_why = _inside(machine, gpus)
    return Choice(between, why, inside, inside_why)


def _between(machine: Machine, gpus: list[Gpu], nics: list[Nic], ports: list[Port]) -> tuple[Transport, str]:
    environment = machine.environment
    wanted = environment.get("NCCL_NET", "")
    active = [p for p in ports if p.active]
    if active and rdma.usable(machine, ports):
        if is_on(environment, "NCCL_IB_DISABLE") or wanted.lower() == "socket":
            return _sockets(machine, nics, "RDMA is switched off (NCCL_IB_DISABLE or NCCL_NET)")
        if all(p.layer == "EFA" for p in active):
            return (
                Transport.EFA,
                f"EFA device {active[0].device}, through the aws-ofi-nccl plugin if it is installed",
            )
        what = f"{active[0].device} is active"
        if environment.get("NCCL_NET_GDR_LEVEL", "") in ("0", "LOC"):
            return Transport.RDMA, f"{what}, and NCCL_NET_GDR_LEVEL switches GPUDirect off"
        if not gpus or gpudirect.available(machine):
            return Transport.RDMA_GDR, f"{what}, and GPU memory can be reached"
        return Transport.RDMA, f"{what}, but there is neither a peer-memory module nor DMA-BUF"
    if active:
        return _sockets(machine, nics, "an RDMA port is active but its /dev/infiniband node can't be opened")
    return _sockets(machine, nics, "no RDMA port is active" if ports else "there is no RDMA device")


def _sockets(machine: Machine, nics: list[Nic], why: str) -> tuple[Transport, str]:
    chosen = socket_interfaces(nics, machine.environment.get("NCCL_SOCKET_IFNAME"))
    if not chosen:
        return Transport.UNKNOWN, f"{why}, and no network interface is up that sockets could use"
    names = ", ".join(n.name for n in chosen)
    kind = Transport.IPOIB if any(n.ipoib for n in chosen) else Transport.TCP
    only_lo = " (the loopback: no other host can be reached)" if all(n.name == "lo" for n in chosen) else ""
    return kind, f"{why}; sockets over {names}{only_lo}"


def _inside(machine: Machine, gpus: list[Gpu]) -> tuple[Transport | None, str]:
    if len(gpus) < 2:
        return None, "fewer than two GPUs"
    if is_on(machine.environment, "NCCL_P2P_DISABLE"):
        return Transport.SHM, "NCCL_P2P_DISABLE is set"
    if any(g.peers is None for g in gpus):
        return Transport.UNKNOWN, "NVML doesn't say which GPUs reach each other"
    if all(set(g.peers or ()) >= {o.index for o in gpus if o is not g} for g in gpus):
        return Transport.P2P, "NVLink" if all(g.nvlinks for g in gpus) else "peer access over PCIe"
    return Transport.SHM, "some GPUs have no peer access to each other"
