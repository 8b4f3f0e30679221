"""Device work with a recorded launch, in the order in which it was launched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.trace.recorded import Int64, Recorded


@dataclass
class Launched:
    """Device events with a known launch in order of that launch; columns of equal length.

    `row` is the row of the device's columns, `step` the step in which it was launched, `place` its number among
    the events of its stream in that step.
    """

    row: Int64
    stream: Int64
    step: Int64
    place: Int64
    launch_ns: Int64
    thread: Int64
    start_ns: Int64
    end_ns: Int64
    signature: tuple[tuple[int, int], ...] = ()

    def on(self, stream: int) -> Int64:
        return np.flatnonzero(self.stream == stream)


def launched(recorded: Recorded, boundaries_ns: Int64) -> Launched:
    """Returns the device events whose launch is recorded, from the first step boundary on.

    Args:
        boundaries_ns: when the host began to launch each step, in order.
    """
    device, launches = recorded.device, recorded.launches
    rows = np.flatnonzero(recorded.launch >= 0)
    begun = launches.start_ns[recorded.launch[rows]]
    order = np.lexsort((device.start_ns[rows], begun))
    rows, begun = rows[order], begun[order]
    step = np.searchsorted(boundaries_ns, begun, side="right") - 1
    keep = step >= 0
    rows, begun, step = rows[keep], begun[keep], step[keep]
    stream = device.stream[rows]
    place = np.zeros(len(rows), dtype=np.int64)
    counts = []
    for number in np.unique(stream):
        mine = np.flatnonzero(stream == number)
        # Work of one stream runs in order of launch; several kernels under one launch (a CUDA graph) by their
        # start.
        first = np.searchsorted(step[mine], np.arange(len(boundaries_ns)))
        place[mine] = np.arange(len(mine)) - first[step[mine]]
        counts.append((int(number), *np.bincount(step[mine], minlength=len(boundaries_ns)).tolist()))
    return Launched(
        row=rows,
        stream=stream,
        step=step,
        place=place,
        launch_ns=begun,
        thread=launches.thread[recorded.launch[rows]],
        start_ns=device.start_ns[rows],
        end_ns=device.end_ns[rows],
        signature=tuple(counts),
    )
