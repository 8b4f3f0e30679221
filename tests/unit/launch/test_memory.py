"""What errors and the kernel say of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from wirecost.breakdown import MemoryKind, OutOfMemory
from wirecost.launch.failures import _largest
from wirecost.launch.memory import (
    asked_bytes,
    forget_peak_resident,
    host_memory_bytes,
    out_of_memory,
    peak_resident_bytes,
)
from wirecost.launch.rank import classify

GPU = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free."
CPU = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 1125899906842624 bytes. Error code 12 (Cannot allocate memory)"

FORGETTING = """
import json
from wirecost.launch.memory import forget_peak_resident, peak_resident_bytes
ballast = bytearray(64 << 20)
peak = peak_resident_bytes()
del ballast
print(json.dumps([peak, forget_peak_resident(), peak_resident_bytes()]))
"""


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (GPU, 2 * 2**30),
        (CPU, 2**50),
        ("CUDA out of memory. Tried to allocate 512 bytes", 512),
        ("Unable to allocate 7.45 GiB for an array with shape (10, 10)", round(7.45 * 2**30)),
        ("CUDA error: out of memory", None),
    ],
)
def test_what_an_allocation_asked_for(message: str, asked: int | None) -> None:
    assert asked_bytes(message) == asked


def test_errors_that_are_want_of_memory() -> None:
    nccl = "NCCL error: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"
    for text in (CPU, "CUDA error: out of memory", nccl):
        assert classify(RuntimeError(text)) == "out_of_memory"
    assert classify(MemoryError()) == "out_of_memory"
    assert classify(RuntimeError("no memory of it")) == "error"
    report = out_of_memory(RuntimeError(CPU))
    assert (report.kind, report.asked_bytes) == (MemoryKind.RESIDENT_SET, 2**50)
    assert report.peak_bytes is not None
    assert report.peak_bytes > 2**20


def test_the_peak_of_a_process_can_begin_anew(tmp_path: Path) -> None:
    assert peak_resident_bytes(tmp_path / "none") is None
    assert not forget_peak_resident(tmp_path / "none" / "none")
    # A process that has freed much before takes new memory from it, without a new peak.
    run = subprocess.run([sys.executable, "-c", FORGETTING], capture_output=True, text=True, check=True)
    peak, forgotten, now = json.loads(run.stdout)
    assert peak is not None and now is not None
    if forgotten:
        assert now <= peak - (48 << 20)


def test_the_largest_of_several_ranks_in_words() -> None:
    of = MemoryKind.DEVICE_ALLOCATED
    most = _largest(
        [OutOfMemory(kind=of, peak_bytes=2**30), OutOfMemory(kind=of, peak_bytes=2**31, asked_bytes=2**20)]
    )
    assert most.words == "peak memory reached 2 GiB (allocated on the GPU), largest allocation asked for 1 MiB"
    assert _largest([OutOfMemory()]).words == "peak memory reached unknown, largest allocation asked for unknown"


def test_the_memory_of_a_host_is_that_of_its_container_if_it_has_one(tmp_path: Path) -> None:
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    assert host_memory_bytes(meminfo, limit) is None
    meminfo.write_text("MemTotal:       1000 kB\nMemFree:         10 kB\n")
    assert host_memory_bytes(meminfo, limit) == 1000 * 1024
    limit.write_text("max\n")
    assert host_memory_bytes(meminfo, limit) == 1000 * 1024
    limit.write_text("4096\n")
    assert host_memory_bytes(meminfo, limit) == 4096
