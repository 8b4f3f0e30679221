"""The peak of a rank's memory over its measured iterations."""

from __future__ import annotations

import torch

from wirecost.breakdown import MemoryKind, PeakMemory
from wirecost.launch.memory import forget_peak_resident, peak_resident_bytes


class MemoryMeter:
    """Nothing here waits for the device: memory is allocated in the order in which work is issued."""

    def __init__(self, device: torch.device, rank: int) -> None:
        self.device = device
        self.rank = rank
        self._began = False

    def begin(self) -> None:
        """Forgets every peak so far."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._began = True
        else:
            self._began = forget_peak_resident()

    def peak(self) -> PeakMemory | None:
        """Since `begin`, or since the process started where the kernel didn't let it begin anew; None where the
        kernel doesn't tell."""
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
