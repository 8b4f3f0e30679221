"""Reads NVLink and PCIe traffic of NVIDIA GPUs from NVML.

NVML's NVLink throughput fields are counters in KiB since the driver was loaded (checked on an H200: 16 GiB copied
from one GPU to another count as exactly 16,777,216). DCGM's fields of the same purpose (1011, 1012) are rates:
never mix the two. NVML's PCIe counters count bytes on the wire, packet headers included, in 32 bits (observed on
the same machine), which a fast link exceeds in under 100 ms. Their total is therefore unknown, and a rate is
measured over a few milliseconds.
"""

from __future__ import annotations

import time
from typing import Any

from wirecost.counters.interface import Reading

# Field identifiers of nvml.h.
NVLINK_THROUGHPUT_DATA_TX = 138  # KiB of payload, since the driver was loaded
NVLINK_THROUGHPUT_DATA_RX = 139
PCIE_COUNT_TX_BYTES = 197  # bytes, modulo 2**32
PCIE_COUNT_RX_BYTES = 198
ALL_LINKS = 0xFFFFFFFF  # the scope that sums a field over the links of a GPU
_KIB = 1024
_UINT, _ULONG, _ULL = 1, 2, 3  # nvmlValueType_t
_PCIE_WINDOW_S = 0.002  # 0.13 GB at PCIe 5.0 x16: far from a wrap
# NVML asks the GPU's own processor: 1.4 ms of CPU time a GPU for NVLink and 0.3 ms for PCIe (H200, driver 580).
_MOST_SHARE_OF_A_CORE = 0.005


class NvmlSource:
    """NVLink counters and PCIe rates of all GPUs that NVML shows. `nvml` replaces the pynvml module in tests.

    `pace_ns` is the time between two readings that limits their cost to half a percent of a core; it is computed
    from the duration of the last one. Without a driver the constructor raises pynvml's error, which `nvml_source`
    turns into None.
    """

    def __init__(self, nvml: Any = None) -> None:
        if nvml is None:
            import pynvml as nvml
        self._nvml = nvml
        nvml.nvmlInit()
        self._gpus = [(i, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())]
        self.pace_ns = 0

    def read(self) -> list[Reading]:
        start_ns, start_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        before = [self._fields(handle, _PCIE) for _, handle in self._gpus]
        readings = []
        for index, handle in self._gpus:
            rx, tx = (_number(v) for v in self._fields(handle, _NVLINK) or (None, None))
            if rx is not None or tx is not None:
                readings.append(Reading("nvlink", f"gpu{index}", time.monotonic_ns(), rx, tx, _KIB))
        time.sleep(max(_PCIE_WINDOW_S - (time.monotonic_ns() - start_ns) * 1e-9, 0))
        for (index, handle), first in zip(self._gpus, before, strict=True):
            gauges = _rates(first, self._fields(handle, _PCIE))
            if gauges:
                readings.append(Reading("pcie", f"gpu{index}", time.monotonic_ns(), gauges=gauges))
        self.pace_ns = round((time.thread_time_ns() - start_cpu_ns) / _MOST_SHARE_OF_A_CORE)
        return readings

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _fields(self, handle: Any, fields: list[tuple[int, int]]) -> Any:
        """Returns the fields' values; None while the GPU is lost or being reset."""
        try:
            return self._nvml.nvmlDeviceGetFieldValues(handle, fields)
        except self._nvml.NVMLError:
            return None


_NVLINK = [(NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS), (NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS)]
_PCIE = [(PCIE_COUNT_RX_BYTES, 0), (PCIE_COUNT_TX_BYTES, 0)]


def _rates(before: Any, after: Any) -> tuple[tuple[str, float], ...]:
    """Returns rates in bytes per second between two readings of a 32-bit counter, by NVML's time
    stamps (in us).
    """
    rates = []
    for name, a, b in zip(("rx_Bps", "tx_Bps"), before or (), after or (), strict=False):
        first, second, passed_us = _number(a), _number(b), b.timestamp - a.timestamp
        if first is not None and second is not None and passed_us > 0:
            rates.append((name, (second - first) % 2**32 * 1e6 / passed_us))
    return tuple(rates)


def nvml_source() -> NvmlSource | None:
    """Returns a source if there is an NVIDIA driver and nvidia-ml-py (extra `monitor`), else None."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return NvmlSource(pynvml)
    except pynvml.NVMLError:
        return None


def _number(value: Any) -> int | None:
    """Returns a field's value; None if the GPU doesn't support it."""
    if value is None or value.nvmlReturn != 0:
        return None
    kind = value.valueType
    if kind == _ULL:
        return int(value.value.ullVal)
    if kind == _ULONG:
        return int(value.value.ulVal)
    return int(value.value.uiVal) if kind == _UINT else None
