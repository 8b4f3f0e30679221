"""A window of iterations under PyTorch's profiler, after the measured ones and outside them."""

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
    """Runs `iterate(0)` unrecorded (what the profiler itself sets up is no training), then `count` iterations that
    are recorded, each a `ProfilerStep#n`; writes the trace, gzipped, to `path` (.json.gz).

    Every rank is to call it at once: the iterations communicate. A trace that can't be written is said in the
    rank's log, and is then missing: the measured iterations are none the worse for it.

    Raises:
        OSError, StorageError: where that lies in the storage.
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    # Without a schedule the profiler annotates no steps, and the trace has no iterations.
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=count, repeat=1)) as profiler:
        for number in range(count + 1):
            iterate(number)
            # After the last one it stops recording, for which it waits until the device has done all.
            profiler.step()
    try:
        _write(profiler, path)
    except OSError as error:
        path.unlink(missing_ok=True)
        if fault_of(error) is not None:
            raise
        sys.stderr.write(f"{path}: the profiled window can't be written: {error}\n")


def _write(profiler: profile, path: Path) -> None:
    """Exports beside `path` and compresses from there. That it couldn't write, the profiler says in the log alone,
    and its own way to a compressed file would leave an empty one."""
    path.parent.mkdir(exist_ok=True)
    plain = path.with_suffix("")
    try:
        profiler.export_chrome_trace(str(plain))
        if not _is_whole(plain):
            check_writable(path.parent)
            raise OSError("the profiler wrote none, or only a part of it")
        with naming(path), plain.open("rb") as source, gzip.open(path, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
    finally:
        for leftover in (plain, plain.with_name(f"{plain.name}.tmp")):
            leftover.unlink(missing_ok=True)


def _is_whole(trace: Path) -> bool:
    """Whether a trace's JSON reaches to its end."""
    if not trace.exists():
        return False
    with trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")
