"""NVLink and PCIe traffic of NVIDIA GPUs, from NVML's counters.

NVML's NVLink throughput fields are counters in KiB since the driver was loaded. DCGM's fields of the same purpose
(1011, 1012) are rates: never mix the two.
"""

from __future__ import annotations

import time
from typing import Any

from wirecost.counters.interface import Reading

# Field identifiers of nvml.h.
NVLINK_THROUGHPUT_DATA_TX = 138  # KiB of payload, since the driver was loaded
NVLINK_THROUGHPUT_DATA_RX = 139
PCIE_COUNT_TX_BYTES = 197  # bytes
PCIE_COUNT_RX_BYTES = 198
ALL_LINKS = 0xFFFFFFFF  # the scope that sums a field over the links of a GPU
_KIB = 1024
_ULL, _UINT, _ULONG = 3, 1, 2  # nvmlValueType_t


class NvmlSource:
    """Counters of all GPUs that NVML shows. `nvml` stands in for the pynvml module in tests.

    Raises whatever pynvml raises where there is no driver; `nvml_source` turns that into None.
    """

    def __init__(self, nvml: Any = None) -> None:
        if nvml is None:
            import pynvml as nvml
        self._nvml = nvml
        nvml.nvmlInit()
        self._gpus = [(i, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())]

    def read(self) -> list[Reading]:
        found = []
        for index, handle in self._gpus:
            try:
                values = self._nvml.nvmlDeviceGetFieldValues(
                    handle,
                    [
                        (NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
                        (NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
                        (PCIE_COUNT_RX_BYTES, 0),
                        (PCIE_COUNT_TX_BYTES, 0),
                    ],
                )
            except self._nvml.NVMLError:
                continue  # fell off the bus, or is being reset; asked again next time
            now = time.monotonic_ns()
            rx, tx, pcie_rx, pcie_tx = (_number(v) for v in values)
            if rx is not None or tx is not None:
                found.append(Reading("nvlink", f"gpu{index}", now, rx, tx, _KIB))
            if pcie_rx is not None or pcie_tx is not None:
                found.append(Reading("pcie", f"gpu{index}", now, pcie_rx, pcie_tx))
        return found

    def close(self) -> None:
        self._nvml.nvmlShutdown()


def nvml_source() -> NvmlSource | None:
    """A source where there is an NVIDIA driver and nvidia-ml-py (extra `monitor`), else None."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return NvmlSource(pynvml)
    except pynvml.NVMLError:
        return None


def _number(value: Any) -> int | None:
    """A field's value, or None where this GPU doesn't support it."""
    if value.nvmlReturn != 0:
        return None
    kind = value.valueType
    if kind == _ULL:
        return int(value.value.ullVal)
    if kind == _ULONG:
        return int(value.value.ulVal)
    return int(value.value.uiVal) if kind == _UINT else None
