"""Finds the iterations of a rank in its time line, and records how they were found."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from wirecost.breakdown.intervals import clip, intersect, merge, total_ns
from wirecost.trace.categories import KERNEL
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.events import STEP
from wirecost.trace.recorded import Annotation, Int64, Recorded
from wirecost.trace.source import TraceError
from wirecost.trace.tiling import incomplete, launched_in, launched_spans, tiles

AUTO, LAUNCHES, GPU, CPU, WHOLE, NAME = "auto", "launches", "gpu", "cpu", "whole", "name:"

# A GPU annotation, the time from the first to the last event that a step launched, or the device's work in several
# steps, that is less than this share of the CPU steps covers scraps of them, not the steps.
_BARE_SHARE = 0.1
# Annotations of the device count as steps if they cover this share of the work from the first to the last.
_COVERED_SHARE = 0.98
# Other annotations count as iterations if they cover at least this share of the time from the first to the
# last, and this share of the recording, which may include a warm-up.
_TILING_SHARE, _RECORDED_SHARE = 0.9, 0.8
# Names of operators, and annotations that PyTorch and Python make by themselves: these are not iterations.
_OPERATOR_NAME = re.compile(
    r"::|, op_id = |, seq = |^## Call CompiledFxGraph|^Torch-Compiled Region|dynamo_timed|^enumerate\(|"
    r"^Optimizer\.|^(DistributedDataParallel|FullyShardedDataParallel|FSDP)[.:]|^autograd|^cuda|^hip|\(dynamo",
)


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
        named = _by_name(recorded, re.compile(choice.removeprefix(NAME)))
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
        chosen = _tiled(list(cpu.values()), recorded, diagnostics)
        if choice == AUTO and _are_scraps(chosen, cpu, recorded):
            chosen = _with_cuts(cpu, chosen)
        if not chosen and choice == AUTO:
            chosen = list((gpu if gpu and _covered(gpu, cpu, recorded) else cpu or gpu).values())
    diagnostics.add("window_not_found", choice != AUTO and not chosen, detail=choice)
    if not chosen and choice == AUTO:
        chosen = _repeated(recorded, communicates, diagnostics)
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


def _tiled(steps: list[Window], recorded: Recorded, diagnostics: DiagnosticCounts) -> list[Window]:
    """Returns windows on the device for the host's steps; none if launches don't determine them."""
    steps = sorted(steps, key=lambda s: (s.start_ns, s.name))
    spans = np.array([(s.start_ns, s.end_ns) for s in steps], dtype=np.int64).reshape(-1, 2)
    step_tiles = tiles(recorded, spans)
    if step_tiles is None:
        return []
    missing = incomplete(recorded, spans)
    end, lost = recorded.record_end_ns, diagnostics.count("cut_off") > 0
    device_windows = []
    for number, (step, span) in enumerate(zip(steps, step_tiles, strict=True)):
        last = number == len(steps) - 1
        cut = (end is not None and step.end_ns > end) or (missing[number] and (lost or last))
        if span is not None:
            device_windows.append(Window(step.name, *span, "launches", cut))
        elif cut:
            device_windows.append(Window(step.name, step.start_ns, step.end_ns, step.source, cut))
        else:
            diagnostics.add("step_without_work")
    return device_windows


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


def _by_name(recorded: Recorded, pattern: re.Pattern[str]) -> list[Window]:
    """Returns the windows of the annotations whose names match; a repeated name gets a number.

    They are what the host's annotations launched if launches are recorded, else the annotations of the device,
    else those of the host. Annotations that follow each other without a gap tile the device's time like steps.
    """
    cpu = [a for a in recorded.cpu_annotations if pattern.search(a.name)]
    named = _numbered(cpu, "cpu_annotation")
    table = np.array([(a.start_ns, a.end_ns) for a in cpu], dtype=np.int64).reshape(-1, 2)
    apart = all(x.end_ns <= y.start_ns for x, y in itertools.pairwise(cpu))
    spans = (tiles if len(cpu) > 1 and apart and _tiling(cpu) else launched_in)(recorded, table)
    launched = [
        Window(w.name, *span, "launches") for w, span in zip(named, spans or [], strict=False) if span is not None
    ]
    if launched:
        return launched
    return _numbered([a for a in recorded.gpu_annotations if pattern.search(a.name)], "gpu_annotation") or named


def _numbered(annotations: list[Annotation], source: str) -> list[Window]:
    count_of: dict[str, int] = defaultdict(int)
    repeated = {name for name, times in Counter(a.name for a in annotations).items() if times > 1}
    numbered = []
    for a in annotations:
        name = f"{a.name}#{count_of[a.name]}" if a.name in repeated else a.name
        count_of[a.name] += 1
        numbered.append(Window(name, a.start_ns, a.end_ns, source))
    return numbered


def _repeated(
    recorded: Recorded, communicates: Callable[[str], bool], diagnostics: DiagnosticCounts
) -> list[Window]:
    """Returns the repeated annotation that tiles nearly the whole recording; none if there is none.

    An annotation of the host tiles it if it covers the host's time from its first to its last occurrence and if
    nearly all work is launched inside it. An annotation of the device tiles it if it covers the device's time.
    """
    device = recorded.device
    if len(device.start_ns) == 0:
        return []
    first, last = int(device.start_ns.min()), int(device.end_ns.max())
    best: list[Window] = []
    most = _RECORDED_SHARE
    for repeated in _groups(recorded.cpu_annotations, communicates):
        share = _launched_share(repeated, recorded)
        if share > most and _tiling(repeated):
            tiled = _tiled(_numbered(repeated, "cpu_annotation"), recorded, diagnostics)
            if len(tiled) > 1:
                best, most = tiled, share
    if best:
        return best
    # Times of the host replace the device's only if the trace records no launches.
    unlaunched = not (recorded.launch_ns >= 0).any()
    for repeated, source in (
        *((g, "gpu_annotation") for g in _groups(recorded.gpu_annotations, communicates)),
        *((g, "cpu_annotation") for g in _groups(recorded.cpu_annotations, communicates) if unlaunched),
    ):
        covered = sum(max(0, min(a.end_ns, last) - max(a.start_ns, first)) for a in repeated)
        if covered >= _RECORDED_SHARE * (last - first) > 0 and _tiling(repeated) and not best:
            best = _numbered(repeated, source)
    return best


def _groups(annotations: list[Annotation], communicates: Callable[[str], bool]) -> list[list[Annotation]]:
    """Returns groups of annotations that repeat, never overlap, and have the same name apart from numbers."""
    groups: dict[tuple[str, int, int], list[Annotation]] = defaultdict(list)
    for a in annotations:
        if not communicates(a.name) and not (a.step or _OPERATOR_NAME.search(a.name) or STEP.fullmatch(a.name)):
            groups[re.sub(r"\d+", "#", a.name), a.stream, a.thread].append(a)
    return [
        group
        for group in groups.values()
        if len(group) > 1 and all(x.end_ns <= y.start_ns for x, y in itertools.pairwise(group))
    ]


def _tiling(listed: list[Annotation]) -> bool:
    """Returns whether annotations, in order of start, cover nearly all of the time from the first to the last."""
    span = listed[-1].end_ns - listed[0].start_ns
    return sum(a.end_ns - a.start_ns for a in listed) >= _TILING_SHARE * span > 0


def _launched_share(listed: list[Annotation], recorded: Recorded) -> float:
    """Returns the share of the device's work with a known launch that was launched inside annotations of the
    host."""
    launch = recorded.launch_ns
    known = (launch >= 0) & (recorded.device.kind == KERNEL)
    if not known.any():
        return 0.0
    starts = np.array([a.start_ns for a in listed], dtype=np.int64)
    ends = np.array([a.end_ns for a in listed], dtype=np.int64)
    at = np.searchsorted(starts, launch, side="right") - 1
    inside = known & (at >= 0) & (launch <= ends[np.maximum(at, 0)])
    length = recorded.device.end_ns - recorded.device.start_ns
    work = int(length[known].sum())
    return int(length[inside].sum()) / work if work else 0.0


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
