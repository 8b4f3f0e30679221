"""A window of iterations under PyTorch's profiler, after the measured ones and outside them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule


def profile_window(count: int, iterate: Callable[[int], object], device: torch.device, path: Path) -> None:
    """Runs `iterate(0)` unrecorded (what the profiler itself sets up is no training), then `count` iterations that
    are recorded, each a `ProfilerStep#n`; writes the trace, gzipped, to `path` (.json.gz).

    Every rank is to call it at once: the iterations communicate. A trace that can't be written is said in the
    rank's log, and is then missing: the measured iterations are none the worse for it.
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
        path.parent.mkdir(exist_ok=True)
        profiler.export_chrome_trace(str(path))
    except OSError as error:
        path.unlink(missing_ok=True)
        sys.stderr.write(f"{path}: the profiled window can't be written: {error}\n")
