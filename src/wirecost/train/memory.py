"""Measures the peak memory of a rank over its measured iterations."""

from __future__ import annotations

import torch

from wirecost.breakdown import MemoryKind, PeakMemory
from wirecost.launch.memory import forget_peak_resident, peak_resident_bytes


class MemoryMeter:
    """Measures the peak memory of a rank without waiting for the device.

    It needn't wait, because memory is allocated in the order in which work is issued.
    """

    def __init__(self, device: torch.device, rank: int) -> None:
        self.device = device
        self.rank = rank
        self._began = False

    def begin(self) -> None:
        """Starts the measurement. Earlier peaks don't count."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._began = True
        else:
            self._began = forget_peak_resident()

    def peak(self) -> PeakMemory | None:
        """Returns the peak since `begin`, or None if the kernel doesn't report it.

        If the kernel doesn't permit `begin` to reset the peak, it is the peak since the process started.
        """
        since = "first_measured_iteration" if self._began else "process_start"
        if self.device.type == "cuda":
            return PeakMemory(
                rank=self.rank,
                kind=MemoryKind.DEVICE_ALLOCATED,
                since=since,
                peak_bytes=torch.cuda.max_memory_allocated(self.device),
                reserved_bytes=torch.cuda.max_memory_reserved(self.device),
            )
        peak = peak_resident_bytes()
        if peak is None:
            return None
        return PeakMemory(rank=self.rank, kind=MemoryKind.RESIDENT_SET, since=since, peak_bytes=peak)
