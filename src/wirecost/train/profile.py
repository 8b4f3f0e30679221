"""Profiles a window of iterations with PyTorch's profiler, after the measured iterations."""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from wirecost.storage import check_writable, fault_of, naming


def profile_window(count: int, iterate: Callable[[int], object], device: torch.device, path: Path) -> None:
    """Profiles iterations and writes their trace. Every rank calls it at the same time, because iterations
    communicate.

    `iterate(0)` runs unrecorded, because the profiler sets itself up in it. `count` recorded iterations follow,
    each as `ProfilerStep#n`. If the trace can't be written, a line in the rank's log says so, and no trace is
    left.

    Args:
        count: number of recorded iterations.
        iterate: runs iteration n of the window.
        path: the trace file (.json.gz).

    Raises:
        OSError, StorageError: if the trace can't be written because the storage fails.
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    # Without a schedule the profiler doesn't annotate steps, and the trace has no iterations.
    # On processors nothing else tells the bytes of collectives.
    shapes = device.type == "cpu"
    window = schedule(wait=0, warmup=1, active=count, repeat=1)
    with profile(activities=activities, schedule=window, record_shapes=shapes) as profiler:
        for number in range(count + 1):
            iterate(number)
            # After the last iteration this stops recording, and waits for the device.
            profiler.step()
    try:
        _write(profiler, path)
    except OSError as error:
        path.unlink(missing_ok=True)
        if fault_of(error) is not None:
            raise
        sys.stderr.write(f"{path}: the profiled window can't be written: {error}\n")


def _write(profiler: profile, path: Path) -> None:
    """Exports the trace beside `path`, checks it, and compresses it to `path`.

    The profiler doesn't raise an error if it can't write. If it compresses the file itself, it leaves an empty
    one.
    """
    path.parent.mkdir(exist_ok=True)
    plain = path.with_suffix("")
    try:
        profiler.export_chrome_trace(str(plain))
        if not _is_whole(plain):
            check_writable(path.parent)
            raise OSError("the profiler did not write it completely")
        with naming(path), plain.open("rb") as source, gzip.open(path, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
    finally:
        for leftover in (plain, plain.with_name(f"{plain.name}.tmp")):
            leftover.unlink(missing_ok=True)


def _is_whole(trace: Path) -> bool:
    """Returns whether a trace's JSON is complete."""
    if not trace.exists():
        return False
    with trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")
