"""An iteration of a rank in its time line, and the windows on the device for steps of the host."""

from __future__ import annotations

import msgspec
import numpy as np

from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.recorded import Recorded
from wirecost.trace.tiling import incomplete, tiles

LAUNCHES = "launches"
"""Source of windows that are known by the device events launched in them."""


class Window(msgspec.Struct):
    """An iteration [start_ns, end_ns).

    `source` is how it was found: `launches` (by the device events launched in it), `gpu_step`, `cpu_step`,
    `gpu_annotation` or `cpu_annotation` (by name), or `whole`. `cut` is whether the recording lacks a part of it.
    """

    name: str
    start_ns: int
    end_ns: int
    source: str
    cut: bool = False


def device_windows(steps: list[Window], recorded: Recorded, diagnostics: DiagnosticCounts) -> list[Window]:
    """Returns windows on the device for the host's steps; none if launches don't determine them."""
    steps = sorted(steps, key=lambda s: (s.start_ns, s.name))
    spans = np.array([(s.start_ns, s.end_ns) for s in steps], dtype=np.int64).reshape(-1, 2)
    step_tiles = tiles(recorded, spans)
    if step_tiles is None:
        return []
    missing = incomplete(recorded, spans)
    end, lost = recorded.record_end_ns, diagnostics.count("cut_off") > 0
    chosen = []
    for number, (step, span) in enumerate(zip(steps, step_tiles, strict=True)):
        last = number == len(steps) - 1
        cut = (end is not None and step.end_ns > end) or (missing[number] and (lost or last))
        if span is not None:
            chosen.append(Window(step.name, *span, LAUNCHES, cut))
        elif cut:
            chosen.append(Window(step.name, step.start_ns, step.end_ns, step.source, cut))
        else:
            diagnostics.add("step_without_work")
    return chosen
