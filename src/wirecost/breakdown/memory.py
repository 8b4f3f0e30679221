"""The peak memory of a rank: its size, kind and start."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from wirecost.breakdown.integers import Natural
from wirecost.units import format_size_bytes


class MemoryKind(StrEnum):
    """The kind of memory of a peak. Values of different kinds are never compared."""

    DEVICE_ALLOCATED = "device_allocated"  # tensors on the GPU (torch.cuda.max_memory_allocated)
    RESIDENT_SET = "resident_set"  # the whole process in the host's memory: interpreter and libraries, too

    @property
    def words(self) -> str:
        return "allocated on the GPU" if self is MemoryKind.DEVICE_ALLOCATED else "resident set"


class PeakMemory(BaseModel):
    """The peak memory of a rank up to the end of its last measured iteration.

    `since` is `first_measured_iteration`, or `process_start` if the kernel can't reset a process's peak; the
    model's construction then counts as well. `reserved_bytes` is the memory that PyTorch's allocator reserved on
    the GPU; None for a process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rank: Natural
    kind: MemoryKind
    since: Literal["first_measured_iteration", "process_start"]
    peak_bytes: Natural
    reserved_bytes: Natural | None = None


def largest_peak(peaks: Sequence[PeakMemory], world_size: int) -> PeakMemory | None:
    """Returns the largest of all ranks' peaks; None unless every rank's peak is known."""
    known = {p.rank for p in peaks}
    return max(peaks, key=lambda p: p.peak_bytes) if len(known) == world_size else None


class OutOfMemory(BaseModel):
    """The memory of a run that ran out of it: its peak, and the largest allocation that failed (as PyTorch reports
    it: exact on a CPU, to about three digits on a GPU). None is unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: MemoryKind | None = None
    peak_bytes: Natural | None = None
    asked_bytes: Natural | None = None

    @property
    def words(self) -> str:
        peak = "unknown"
        if self.peak_bytes is not None:
            of = f" ({self.kind.words})" if self.kind else ""
            peak = f"{format_size_bytes(self.peak_bytes)}{of}"
        requested = "unknown" if self.asked_bytes is None else format_size_bytes(self.asked_bytes)
        return f"peak memory reached {peak}, largest allocation asked for {requested}"
