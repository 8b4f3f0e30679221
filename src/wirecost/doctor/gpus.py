"""Checks GPUs, their PCIe links and NVLink, and peer access between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.machine import Machine

_MOST_LINKS = 18  # NVML_NVLINK_MAX_LINKS
_P2P_OK, _P2P_READ = 0, 0  # NVML_P2P_STATUS_OK, NVML_P2P_CAPS_INDEX_READ


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Unknown values are None. `peers` are the GPUs that it can read from directly."""

    index: int
    name: str
    bus_id: str | None = None  # as in sysfs: 0000:17:00.0
    nvlinks: int | None = None
    pcie_generation: int | None = None
    pcie_generation_most: int | None = None
    pcie_width: int | None = None
    pcie_width_most: int | None = None
    peers: tuple[int, ...] | None = None


def gpus_of(machine: Machine) -> list[Gpu]:
    """Returns the GPUs from NVML if it is permitted and available, else from /proc and /sys."""
    if machine.live or machine.nvml is not None:
        gpus = _from_nvml(machine)
        if gpus:
            return gpus
    gpus = []
    for index, bus_id in enumerate(machine.names("proc/driver/nvidia/gpus")):
        information = machine.text(f"proc/driver/nvidia/gpus/{bus_id}/information") or ""
        model = next((line.partition(":")[2].strip() for line in information.splitlines() if "Model" in line), "")
        gpus.append(Gpu(index, model or "NVIDIA GPU", bus_id.lower()))
    if not gpus:
        for card in machine.names("sys/class/kfd/kfd/topology/nodes"):
            properties = machine.text(f"sys/class/kfd/kfd/topology/nodes/{card}/properties") or ""
            # A node without SIMDs is a CPU.
            if any(line.startswith("simd_count ") and line.split()[1] != "0" for line in properties.splitlines()):
                gpus.append(Gpu(len(gpus), "AMD GPU"))
    return gpus


def probe(machine: Machine, gpus: list[Gpu]) -> Iterator[Diagnostic]:
    if not gpus:
        if machine.exists("dev/nvidiactl") or machine.exists("proc/driver/nvidia"):
            yield diagnostic(
                "gpu_not_visible",
                "the NVIDIA driver is loaded, but no GPU is visible",
            )
        else:
            yield diagnostic(
                "no_gpu",
                "no GPU: jobs here run on the CPU, with gloo",
            )
        return
    names = ", ".join(f"{n} x {name}" for name, n in _counts([g.name for g in gpus]).items())
    yield diagnostic(
        "gpus_present",
        f"{names}; driver {_driver(machine)}",
    )
    for gpu in gpus:
        yield from _pcie(gpu)
    if len(gpus) > 1:
        yield from _links(gpus)


def _links(gpus: list[Gpu]) -> Iterator[Diagnostic]:
    linked = [g for g in gpus if g.nvlinks]
    if linked:
        per_gpu = {g.nvlinks for g in linked}
        yield diagnostic(
            "nvlink_present",
            f"NVLink: {len(linked)} of {len(gpus)} GPUs, {_range(per_gpu)} links each",
        )
        if len(per_gpu) > 1 or len(linked) < len(gpus):
            yield diagnostic(
                "nvlinks_differ",
                "GPUs don't have the same number of active NVLinks: the GPU with the fewest limits a ring",
            )
    elif any(g.nvlinks is not None for g in gpus):
        yield diagnostic(
            "no_nvlink",
            "no NVLink: GPUs communicate over PCIe",
        )
    if all(g.peers is not None for g in gpus):
        lost = [(g.index, o.index) for g in gpus for o in gpus if o is not g and o.index not in (g.peers or ())]
        if lost:
            shown = ", ".join(f"{a}->{b}" for a, b in lost[:4]) + (", ..." if len(lost) > 4 else "")
            yield diagnostic(
                "peer_access_missing",
                f"no peer access between GPUs {shown}: NCCL goes through shared memory there",
            )
        else:
            yield diagnostic(
                "peer_access",
                "every GPU has peer access to every other",
            )


def _pcie(gpu: Gpu) -> Iterator[Diagnostic]:
    if gpu.pcie_width and gpu.pcie_width_most and gpu.pcie_width < gpu.pcie_width_most:
        yield diagnostic(
            "pcie_link_narrow",
            f"GPU {gpu.index} runs its PCIe link at x{gpu.pcie_width} of x{gpu.pcie_width_most}",
        )


def _from_nvml(machine: Machine) -> list[Gpu]:
    nvml = machine.nvml
    if nvml is None:
        try:
            import pynvml as nvml
        except ImportError:
            return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return [_gpu(nvml, i, handles) for i in range(len(handles))]
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int, handles: list[Any]) -> Gpu:
    handle = handles[index]

    def ask(name: str, *arguments: Any) -> Any:
        with suppress(nvml.NVMLError):
            return getattr(nvml, name)(handle, *arguments)
        return None

    links = 0
    known = False
    for link in range(_MOST_LINKS):
        state = ask("nvmlDeviceGetNvLinkState", link)
        known = known or state is not None
        links += state == 1
    peers = []
    for other, other_handle in enumerate(handles):
        if other != index and ask("nvmlDeviceGetP2PStatus", other_handle, _P2P_READ) == _P2P_OK:
            peers.append(other)
    pci = ask("nvmlDeviceGetPciInfo")
    bus_id = _decoded(pci.busId) if pci is not None else None
    return Gpu(
        index,
        _decoded(ask("nvmlDeviceGetName") or "NVIDIA GPU"),
        # NVML writes the domain with eight digits, sysfs with four.
        bus_id[-12:].lower() if bus_id else None,
        links if known else 0,
        ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        ask("nvmlDeviceGetCurrPcieLinkWidth"),
        ask("nvmlDeviceGetMaxPcieLinkWidth"),
        tuple(peers),
    )


def _decoded(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _driver(machine: Machine) -> str:
    version = machine.text("sys/module/nvidia/version") or machine.text("sys/module/amdgpu/version")
    return version or "version unknown"


def _counts(names: list[str]) -> dict[str, int]:
    return {name: names.count(name) for name in dict.fromkeys(names)}


def _range(numbers: set[int | None]) -> str:
    known = sorted(n for n in numbers if n is not None)
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"
