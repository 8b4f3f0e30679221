"""Finds the iterations of a rank in its time line, and records how they were found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

from wirecost.breakdown.intervals import clip, intersect, merge, total_ns
from wirecost.trace.annotated_windows import named_windows, repeated_windows
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.events import STEP
from wirecost.trace.recorded import Annotation, Int64, Recorded
from wirecost.trace.source import TraceError
from wirecost.trace.tiling import launched_spans
from wirecost.trace.window import LAUNCHES, Window, device_windows

AUTO, GPU, CPU, WHOLE, NAME = "auto", "gpu", "cpu", "whole", "name:"

# A GPU annotation, the time from the first to the last event that a step launched, or the device's work in several
# steps, that is less than this share of the CPU steps covers scraps of them, not the steps.
_BARE_SHARE = 0.1
# Annotations of the device count as steps if they cover this share of the work from the first to the last.
_COVERED_SHARE = 0.98


def check_choice(choice: str) -> None:
    """Raises TraceError unless `choice` is auto, launches, gpu, cpu, whole or name:REGEX."""
    if choice in (AUTO, LAUNCHES, GPU, CPU, WHOLE):
        return
    if choice.startswith(NAME):
        try:
            re.compile(choice.removeprefix(NAME))
        except re.error as error:
            raise TraceError(f"window '{choice}': not a regular expression: {error}") from error
        return
    raise TraceError(f"unknown window '{choice}'; allowed: auto, launches, gpu, cpu, whole, name:REGEX")


def windows(
    recorded: Recorded, choice: str, diagnostics: DiagnosticCounts, communicates: Callable[[str], bool]
) -> list[Window]:
    """Returns the iterations in order of their start. `choice` is `auto` or one of the sources (see
    `check_choice`).

    With `auto`, an iteration lasts from the first device event launched in a profiler step to the first launched
    in the next step. The steps are the host's if the device works in a small part of them only, as in a trace that
    was thinned to a few events. If launches aren't recorded, the steps' GPU annotations are used if they cover the
    device's work, else the CPU steps. Without any profiler step, repeated annotations that tile the recording are
    used in the same way. Otherwise there is no iteration. The whole window is reported in any case.
    """
    if choice == WHOLE:
        return []
    if choice.startswith(NAME):
        named = named_windows(recorded, re.compile(choice.removeprefix(NAME)))
        diagnostics.add("window_not_found", not named, detail=choice)
        return _marked(named, recorded, diagnostics)
    gpu = _steps(recorded.gpu_annotations, "gpu_step", diagnostics)
    cpu = _steps(recorded.cpu_annotations, "cpu_step", diagnostics)
    if choice == GPU:
        chosen = list(gpu.values())
        _point_out_bare(chosen, cpu, diagnostics)
    elif choice == CPU:
        chosen = list(cpu.values())
    else:
        chosen = device_windows(list(cpu.values()), recorded, diagnostics)
        if choice == AUTO and _are_scraps(chosen, cpu, recorded):
            chosen = _with_cuts(cpu, chosen)
        if not chosen and choice == AUTO:
            chosen = list((gpu if gpu and _covered(gpu, cpu, recorded) else cpu or gpu).values())
    diagnostics.add("window_not_found", choice != AUTO and not chosen, detail=choice)
    if not chosen and choice == AUTO:
        chosen = repeated_windows(recorded, communicates, diagnostics)
        diagnostics.add("window_inferred", len(chosen))
    return _marked(chosen, recorded, diagnostics)


def _are_scraps(chosen: list[Window], cpu: dict[str, Window], recorded: Recorded) -> bool:
    """Returns whether the device works in a small part of the host's steps, or what one of them launched spans a
    small part of it. Steps that the recording cuts off don't count.

    Such a window begins anywhere in the step, since the first of so few events isn't the step's first work. And
    where no next step ends it, it leaves out the host's time after the last work of the device.
    """
    whole = {w.name for w in chosen if w.source == LAUNCHES and (not w.cut or len(cpu) == 1)}
    if not whole:
        return False
    if len(whole) > 1:
        # The device may be behind the host, so that its work isn't inside the host's steps.
        device = merge(np.array([(w.start_ns, w.end_ns) for w in chosen if w.name in whole], dtype=np.int64))
        worked_ns = total_ns(intersect(_busy(recorded), device))
        if worked_ns < _BARE_SHARE * sum(cpu[name].end_ns - cpu[name].start_ns for name in whole):
            return True
    steps = sorted(cpu.values(), key=lambda s: (s.start_ns, s.name))
    spans = np.array([(s.start_ns, s.end_ns) for s in steps], dtype=np.int64)
    return any(
        step.name in whole and span is not None and span[1] - span[0] < _BARE_SHARE * (step.end_ns - step.start_ns)
        for step, span in zip(steps, launched_spans(recorded, spans), strict=True)
    )


def _with_cuts(cpu: dict[str, Window], chosen: list[Window]) -> list[Window]:
    """Returns the steps of the host. Of several, those of which work of the device is missing in the recording are
    cut."""
    cut = {w.name for w in chosen if w.cut and len(cpu) > 1}
    for step in cpu.values():
        step.cut = step.name in cut
    return list(cpu.values())


def _point_out_bare(chosen: list[Window], cpu: dict[str, Window], diagnostics: DiagnosticCounts) -> None:
    bare = [
        w
        for w in chosen
        if w.name in cpu and w.end_ns - w.start_ns < _BARE_SHARE * (cpu[w.name].end_ns - cpu[w.name].start_ns)
    ]
    diagnostics.add("bare_gpu_step", len(bare))


def _steps(annotations: Iterable[Annotation], source: str, diagnostics: DiagnosticCounts) -> dict[str, Window]:
    """Returns profiler steps by name. On the GPU a step may be annotated on each of its streams; the window spans
    them."""
    by_name: dict[str, Window] = {}
    rows: set[tuple[str, int, int]] = set()
    for a in annotations:
        if not (a.step or STEP.fullmatch(a.name)):
            continue
        window = by_name.get(a.name)
        if window is None:
            by_name[a.name] = Window(a.name, a.start_ns, a.end_ns, source)
        else:
            window.start_ns, window.end_ns = min(window.start_ns, a.start_ns), max(window.end_ns, a.end_ns)
            diagnostics.add("step_repeated", (a.name, a.stream, a.thread) in rows)
        rows.add((a.name, a.stream, a.thread))
    return by_name


def _covered(gpu: dict[str, Window], cpu: dict[str, Window], recorded: Recorded) -> bool:
    """Returns whether the annotations of the device hold its work from the first of them to the last, and every
    step."""
    if any(name not in gpu for name in cpu):
        return False
    spans = merge(np.array([(w.start_ns, w.end_ns) for w in gpu.values()], dtype=np.int64).reshape(-1, 2))
    if len(spans) == 0:
        return False
    busy = clip(_busy(recorded), int(spans[0, 0]), int(spans[-1, 1]))
    if len(gpu) == 1:
        # A single step has no work between annotations, so it must cover the work during the step of the host.
        (step,) = cpu.values() or gpu.values()
        busy = clip(_busy(recorded), step.start_ns, max(step.end_ns, int(spans[-1, 1])))
    return total_ns(intersect(busy, spans)) >= _COVERED_SHARE * total_ns(busy)


def _busy(recorded: Recorded) -> Int64:
    device = recorded.device
    return merge(np.stack([device.start_ns, device.end_ns], axis=1))


def _marked(chosen: list[Window], recorded: Recorded, diagnostics: DiagnosticCounts) -> list[Window]:
    """Marks the windows that the recording doesn't contain completely, and sorts them."""
    # A cut-off file has lost its end marks, so its recording ends with its last device event.
    end = recorded.record_end_ns
    lost = diagnostics.count("cut_off")
    if lost and len(recorded.device.end_ns):
        last = int(recorded.device.end_ns.max())
        end = last if end is None else min(end, last)
    for window in chosen:
        late = end is not None and window.end_ns > end and window.source.startswith("cpu" if not lost else "")
        early = recorded.record_start_ns is not None and window.start_ns < recorded.record_start_ns
        window.cut = bool(window.cut or late or early)
    diagnostics.add("cut_step", sum(w.cut for w in chosen))
    return sorted(chosen, key=lambda w: (w.start_ns, w.name))
