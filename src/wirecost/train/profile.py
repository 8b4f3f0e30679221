"""Profiles a window of iterations with PyTorch's profiler, after the measured iterations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule


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
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    # Without a schedule the profiler doesn't annotate steps, and the trace has no iterations.
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=count, repeat=1)) as profiler:
        for number in range(count + 1):
            iterate(number)
            # After the last iteration this stops recording, and waits for the device.
            profiler.step()
    try:
        path.parent.mkdir(exist_ok=True)
        profiler.export_chrome_trace(str(path))
    except OSError as error:
        path.unlink(missing_ok=True)
        sys.stderr.write(f"{path}: the profiled window can't be written: {error}\n")
