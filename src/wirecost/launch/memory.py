"""Measures the peak memory of this process, and recognises errors that report exhausted memory."""

from __future__ import annotations

import re
import resource
import sys
from decimal import Decimal
from pathlib import Path

from wirecost.breakdown.memory import MemoryKind, OutOfMemory

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MEMINFO, CGROUP_LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_REQUESTED = re.compile(
    # Messages of PyTorch on a GPU ("Tried to allocate 2.00 GiB") and on a CPU ("you tried to allocate 8
    # bytes"), and of NumPy ("Unable to allocate 2.00 GiB").
    r"(?:[Tt]ried|[Uu]nable) to allocate (\d{1,20}(?:\.\d{1,9})?) (bytes|[KMG]iB)"
)
_EXHAUSTED = ("can't allocate memory", "CUDA error: out of memory", "'out of memory'")
"""Messages of PyTorch's CPU allocator, of CUDA outside PyTorch's allocator, and of CUDA inside NCCL."""


def peak_resident_bytes(status: Path = STATUS) -> int | None:
    """Returns the largest resident set of this process in bytes, or None if the kernel doesn't report it.

    The peak is counted since the process started, or since the last call of `forget_peak_resident` (VmHWM,
    proc_pid_status(5)). `ru_maxrss` isn't used, because it includes the program that ran before `exec`.
    """
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def host_memory_bytes(meminfo: Path = MEMINFO, limit: Path = CGROUP_LIMIT) -> int | None:
    """Returns the memory of this machine in bytes, or the limit of this process's container if that is lower. None
    if the kernel reports neither."""
    found = []
    for path, pattern, unit in ((meminfo, r"^MemTotal:\s+(\d+) kB$", 1024), (limit, r"^(\d+)$", 1)):
        try:
            match = re.search(pattern, path.read_text(), re.MULTILINE)
        except OSError:
            continue
        if match:
            found.append(int(match[1]) * unit)
    return min(found, default=None)


def forget_peak_resident(clear_refs: Path = CLEAR_REFS) -> bool:
    """Resets the peak of `peak_resident_bytes` to the current resident set (proc_pid_clear_refs(5)).

    Returns:
        Whether the kernel permits it.
    """
    try:
        clear_refs.write_text("5")
    except OSError:
        return False
    return True


def largest_child_bytes() -> int | None:
    """Returns the largest resident set in bytes that a child of this process reached, or None without such a
    child.

    Only children that ended and were waited for count.
    """
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 or None


def asked_bytes(message: str) -> int | None:
    """Returns the size in bytes of the failed allocation that an error message reports, or None."""
    sizes = [round(Decimal(number) * _UNITS[unit]) for number, unit in _REQUESTED.findall(message)]
    return max(sizes, default=None)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error reports that the memory of the host or of a device is exhausted."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(sign in text for sign in _EXHAUSTED)
    )


def out_of_memory(error: BaseException) -> OutOfMemory:
    """Returns the peak memory of this process and the failed allocation, right after an out-of-memory error."""
    torch = sys.modules.get("torch")
    on_device = type(error).__name__ == "OutOfMemoryError" or "cuda" in str(error).lower()
    if on_device and torch is not None and torch.cuda.is_initialized():
        kind, peak = MemoryKind.DEVICE_ALLOCATED, int(torch.cuda.max_memory_allocated())
    else:
        kind, peak = MemoryKind.RESIDENT_SET, peak_resident_bytes()
    return OutOfMemory(
        kind=kind if peak is not None else None, peak_bytes=peak, asked_bytes=asked_bytes(str(error))
    )
