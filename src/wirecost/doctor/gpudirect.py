"""Checks whether a NIC can access GPU memory: the peer-memory module or DMA-BUF, the IOMMU, the PCI path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.gpus import Gpu
from wirecost.doctor.machine import Machine
from wirecost.doctor.rdma import Port

# The modules that NCCL looks for (src/transport/net_ib): the driver's, and Mellanox's older one.
_PEER_MEMORY = (
    "sys/module/nvidia_peermem",
    "sys/kernel/mm/memory_peers/nv_mem",
    "sys/kernel/mm/memory_peers/nvidia-peermem",
)
_DMABUF_KERNEL = (5, 12)  # the first with ib_umem_dmabuf_get
_ACS_CAPABILITY = 0x000D  # PCI Express, 7.7.8
_ACS_REDIRECT = 0b0001_1100  # control bits: request redirect, completion redirect, upstream forwarding


def available(machine: Machine) -> bool:
    """Returns whether RDMA can access GPU memory."""
    return _peer_memory(machine) is not None or _dmabuf(machine)


def probe(machine: Machine, gpus: list[Gpu], ports: list[Port]) -> Iterator[Diagnostic]:
    if not gpus or not ports:
        return
    module = _peer_memory(machine)
    if module is not None:
        yield diagnostic(
            "peer_memory_module",
            f"peer-memory module is loaded ({module})",
        )
    if _dmabuf(machine):
        yield diagnostic(
            "dma_buf_present",
            "DMA-BUF: open GPU kernel driver on Linux 5.12 or later",
        )
    if not available(machine):
        yield diagnostic(
            "gpudirect_unavailable",
            "neither a peer-memory module nor DMA-BUF: RDMA is staged through host memory",
        )
    yield from _distances(machine, gpus, ports)
    yield from _iommu(machine)


def _peer_memory(machine: Machine) -> str | None:
    return next((Path(p).name for p in _PEER_MEMORY if machine.exists(p)), None)


def _dmabuf(machine: Machine) -> bool:
    m = re.match(r"(\d+)\.(\d+)", machine.text("proc/sys/kernel/osrelease") or "")
    return (
        m is not None
        and (int(m[1]), int(m[2])) >= _DMABUF_KERNEL
        and "Open Kernel Module" in (machine.text("proc/driver/nvidia/version") or "")
    )


def _pci_path(machine: Machine, bus_id: str | None) -> list[str]:
    """Returns the bridges from the root complex down to a device, from its path in sysfs."""
    if bus_id is None:
        return []
    device = machine.root / "sys/bus/pci/devices" / bus_id
    if not device.exists():
        return []
    return [part for part in device.resolve().parts if re.match(r"(pci)?[0-9a-f]{4}:", part)]


def distance(machine: Machine, a: str | None, b: str | None) -> str | None:
    """Returns NCCL's name of the path between two PCI devices: PIX (one switch), PXB (several), PHB (through the
    CPU), SYS (across CPU sockets); None if a device's location is unknown.
    """
    path_a, path_b = _pci_path(machine, a), _pci_path(machine, b)
    if not path_a or not path_b:
        return None
    common = 0
    while common < min(len(path_a), len(path_b)) and path_a[common] == path_b[common]:
        common += 1
    if common == 0:
        nodes = {machine.text(f"sys/bus/pci/devices/{x}/numa_node") for x in (a, b)}
        return "PHB" if len(nodes) == 1 else "SYS"
    if common == 1:
        return "PHB"
    return "PIX" if len(path_a) - common <= 2 and len(path_b) - common <= 2 else "PXB"


def _distances(machine: Machine, gpus: list[Gpu], ports: list[Port]) -> Iterator[Diagnostic]:
    far = []
    near = 0
    for gpu in gpus:
        ways = [distance(machine, gpu.bus_id, p.bus_id) for p in ports if p.active]
        known = [w for w in ways if w is not None]
        if not known:
            continue
        best = min(known, key=("PIX", "PXB", "PHB", "SYS").index)
        if best in ("PIX", "PXB"):
            near += 1
        else:
            far.append((gpu.index, best))
    if near:
        yield diagnostic(
            "nic_near_gpu",
            f"{near} of {len(gpus)} GPUs have a NIC on their PCIe switch",
        )
    if far:
        shown = ", ".join(f"GPU {i} ({w})" for i, w in far)
        yield diagnostic(
            "nic_far_from_gpu",
            f"no NIC on the PCIe switch of {shown}: NCCL may refuse GPUDirect there by its distance rule",
        )


def _iommu(machine: Machine) -> Iterator[Diagnostic]:
    command_line = machine.text("proc/cmdline") or ""
    if machine.names("sys/kernel/iommu_groups") and "iommu=pt" not in command_line:
        yield diagnostic(
            "iommu_translates",
            "the IOMMU translates (no iommu=pt): GPUDirect and peer access over PCIe are slow or fail",
        )
    redirecting = [name for name in machine.names("sys/bus/pci/devices") if _acs_redirects(machine, name)]
    if redirecting:
        yield diagnostic(
            "acs_on",
            f"ACS is on in {len(redirecting)} PCIe bridges ({redirecting[0]}, ...): traffic between GPU and NIC "
            "takes a detour through the CPU",
        )


def _acs_redirects(machine: Machine, name: str) -> bool:
    """Returns whether a bridge's ACS control register redirects requests. Only root can read that part of the
    configuration space.
    """
    base = f"sys/bus/pci/devices/{name}"
    if not (machine.text(f"{base}/class") or "").startswith("0x0604"):  # PCI-to-PCI bridge
        return False
    try:
        config = (machine.root / base / "config").read_bytes()
    except OSError:
        return False
    at = 0x100
    seen = set()
    while 0x100 <= at <= len(config) - 8 and at not in seen:
        seen.add(at)
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS_CAPABILITY:
            return bool(int.from_bytes(config[at + 6 : at + 8], "little") & _ACS_REDIRECT)
        at = header >> 20
    return False
