"""A process' own peak of memory, and what is known of an error that says memory ran out."""

from __future__ import annotations

import re
import resource
import sys
from decimal import Decimal
from pathlib import Path

from wirecost.breakdown.memory import MemoryKind, OutOfMemory

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ASKED = re.compile(
    # PyTorch on a GPU ("Tried to allocate 2.00 GiB") and on a CPU ("you tried to allocate 8 bytes"); NumPy.
    r"(?:[Tt]ried|[Uu]nable) to allocate (\d{1,20}(?:\.\d{1,9})?) (bytes|[KMG]iB)"
)
_OUT = ("can't allocate memory", "CUDA error: out of memory", "'out of memory'")
"""PyTorch's CPU allocator; CUDA outside PyTorch's allocator; CUDA inside NCCL."""


def peak_resident_bytes(status: Path = STATUS) -> int | None:
    """The largest resident set of this process since it started or `forget_peak_resident` (VmHWM,
    proc_pid_status(5)); None where the kernel doesn't tell.

    `ru_maxrss` isn't used: it keeps what the process was before `exec`.
    """
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def forget_peak_resident(clear_refs: Path = CLEAR_REFS) -> bool:
    """Starts the peak anew at what is resident now (proc_pid_clear_refs(5)); False where the kernel doesn't let
    it."""
    try:
        clear_refs.write_text("5")
    except OSError:
        return False
    return True


def largest_child_bytes() -> int | None:
    """The largest resident set that a child of this process reached, of those that ended and were waited for; None
    where there was none."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 or None


def asked_bytes(message: str) -> int | None:
    """What the allocation that failed asked for, by the error's message."""
    asked = [round(Decimal(number) * _UNITS[unit]) for number, unit in _ASKED.findall(message)]
    return max(asked, default=None)


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(sign in text for sign in _OUT)
    )


def out_of_memory(error: BaseException) -> OutOfMemory:
    """What this process knows right after such an error."""
    torch = sys.modules.get("torch")
    on_device = type(error).__name__ == "OutOfMemoryError" or "cuda" in str(error).lower()
    if on_device and torch is not None and torch.cuda.is_initialized():
        kind, peak = MemoryKind.DEVICE_ALLOCATED, int(torch.cuda.max_memory_allocated())
    else:
        kind, peak = MemoryKind.RESIDENT_SET, peak_resident_bytes()
    return OutOfMemory(
        kind=kind if peak is not None else None, peak_bytes=peak, asked_bytes=asked_bytes(str(error))
    )
