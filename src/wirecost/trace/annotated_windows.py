"""Finds iterations by annotations that aren't a profiler's steps: those of a name, and those that repeat."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np

from wirecost.trace.categories import KERNEL
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.events import STEP
from wirecost.trace.recorded import Annotation, Recorded
from wirecost.trace.tiling import launched_in, tiles
from wirecost.trace.window import Window, device_windows

# Other annotations count as iterations if they cover at least this share of the time from the first to the
# last, and this share of the recording, which may include a warm-up.
_TILING_SHARE, _RECORDED_SHARE = 0.9, 0.8
# Names of operators, and annotations that PyTorch and Python make by themselves: these are not iterations.
_OPERATOR_NAME = re.compile(
    r"::|, op_id = |, seq = |^## Call CompiledFxGraph|^Torch-Compiled Region|dynamo_timed|^enumerate\(|"
    r"^Optimizer\.|^(DistributedDataParallel|FullyShardedDataParallel|FSDP)[.:]|^autograd|^cuda|^hip|\(dynamo",
)


def named_windows(recorded: Recorded, pattern: re.Pattern[str]) -> list[Window]:
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


def repeated_windows(
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
            tiled = device_windows(_numbered(repeated, "cpu_annotation"), recorded, diagnostics)
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
