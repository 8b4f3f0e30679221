"""Which stretches of a rank's time line are its iterations, and where that is known from."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

import msgspec

from wirecost.trace.events import STEP
from wirecost.trace.problems import Problems
from wirecost.trace.recorded import Annotation, Recorded
from wirecost.trace.source import TraceError

AUTO, GPU, CPU, WHOLE, NAME = "auto", "gpu", "cpu", "whole", "name:"

# A GPU annotation that covers less than this share of the CPU step covers one stream's scraps, not the step.
_BARE_SHARE = 0.1
# Repeated GPU annotations count as iterations where they cover at least this share of the device's time.
_COVERED_SHARE = 0.5


class Window(msgspec.Struct):
    """An iteration [start_ns, end_ns); `source` says what it was taken from: `gpu_step`, `cpu_step`,
    `gpu_annotation` or `cpu_annotation` (by name), `whole`. `cut`: the recording doesn't hold all of it."""

    name: str
    start_ns: int
    end_ns: int
    source: str
    cut: bool = False


def check_choice(choice: str) -> None:
    """Raises TraceError unless `choice` is auto, gpu, cpu, whole or name:REGEX."""
    if choice in (AUTO, GPU, CPU, WHOLE):
        return
    if choice.startswith(NAME):
        try:
            re.compile(choice.removeprefix(NAME))
        except re.error as error:
            raise TraceError(f"window '{choice}': no regular expression: {error}") from error
        return
    raise TraceError(f"unknown window '{choice}'; allowed: auto, gpu, cpu, whole, name:REGEX")


def wanted(choice: str) -> re.Pattern[str] | None:
    """The names that a choice name:REGEX asks for; None for the others."""
    return re.compile(choice.removeprefix(NAME)) if choice.startswith(NAME) else None


def windows(
    recorded: Recorded, choice: str, problems: Problems, communicates: Callable[[str], bool]
) -> list[Window]:
    """The iterations in order of their start. `choice` is auto or one of the sources (see `check_choice`).

    auto: each profiler step's GPU annotation where the file has one, else the CPU step; without any profiler
    step repeated GPU annotations; else none (the whole window is reported in any case).
    """
    if choice == WHOLE:
        return []
    pattern = wanted(choice)
    if pattern is not None:
        found = _by_name(recorded, pattern)
        problems.add("window_not_found", not found, detail=choice)
        return _marked(found, recorded, problems)
    gpu = _steps(recorded.gpu_annotations, "gpu_step", problems)
    cpu = _steps(recorded.cpu_annotations, "cpu_step", problems)
    if choice == GPU:
        chosen = list(gpu.values())
    elif choice == CPU:
        chosen = list(cpu.values())
    else:
        chosen = [gpu.get(name) or window for name, window in (cpu | gpu).items()]
        if gpu:
            problems.add("mixed_windows", sum(name not in gpu for name in cpu))
    bare = [
        w
        for w in chosen
        if w.source == "gpu_step"
        and w.name in cpu
        and w.end_ns - w.start_ns < _BARE_SHARE * (cpu[w.name].end_ns - cpu[w.name].start_ns)
    ]
    problems.add("bare_gpu_step", len(bare))
    problems.add("window_not_found", choice != AUTO and not chosen, detail=choice)
    if not chosen and choice == AUTO:
        chosen = _repeated(recorded, communicates)
        problems.add("window_inferred", len(chosen))
    return _marked(chosen, recorded, problems)


def _steps(annotations: Iterable[Annotation], source: str, problems: Problems) -> dict[str, Window]:
    """Profiler steps by name. On the GPU a step may be annotated on each of its streams; the window spans them."""
    found: dict[str, Window] = {}
    streams: set[tuple[str, int]] = set()
    for a in annotations:
        if not STEP.fullmatch(a.name):
            continue
        window = found.get(a.name)
        if window is None:
            found[a.name] = Window(a.name, a.start_ns, a.end_ns, source)
        else:
            window.start_ns, window.end_ns = min(window.start_ns, a.start_ns), max(window.end_ns, a.end_ns)
            problems.add("step_repeated", (a.name, a.stream) in streams)
        streams.add((a.name, a.stream))
    return found


def _by_name(recorded: Recorded, pattern: re.Pattern[str]) -> list[Window]:
    """Windows of the annotations that match, those of the GPU where it has any; numbered where a name repeats."""
    for listed, source in (
        (recorded.gpu_annotations, "gpu_annotation"),
        (recorded.cpu_annotations, "cpu_annotation"),
    ):
        found = [a for a in listed if pattern.search(a.name)]
        if found:
            return _numbered(found, source)
    return []


def _numbered(annotations: list[Annotation], source: str) -> list[Window]:
    seen: dict[str, int] = defaultdict(int)
    repeated = {name for name, times in Counter(a.name for a in annotations).items() if times > 1}
    found = []
    for a in annotations:
        name = f"{a.name}#{seen[a.name]}" if a.name in repeated else a.name
        seen[a.name] += 1
        found.append(Window(name, a.start_ns, a.end_ns, source))
    return found


def _repeated(recorded: Recorded, communicates: Callable[[str], bool]) -> list[Window]:
    """The repeated annotation that covers most of the device's time, if it covers half and never overlaps; the
    GPU's come first."""
    device = recorded.device
    if len(device.start_ns) == 0:
        return []
    whole = int(device.end_ns.max()) - int(device.start_ns.min())
    for listed, source in (
        (recorded.gpu_annotations, "gpu_annotation"),
        (recorded.cpu_annotations, "cpu_annotation"),
    ):
        groups: dict[tuple[str, int], list[Annotation]] = defaultdict(list)
        for a in listed:
            if not communicates(a.name):
                groups[re.sub(r"\d+", "#", a.name), a.stream].append(a)
        best: list[Annotation] = []
        covered = _COVERED_SHARE * whole
        for found in groups.values():
            apart = all(x.end_ns <= y.start_ns for x, y in itertools.pairwise(found))
            total = sum(a.end_ns - a.start_ns for a in found)
            if len(found) > 1 and apart and total >= covered:
                best, covered = found, total
        if best:
            return _numbered(best, source)
    return []


def _marked(found: list[Window], recorded: Recorded, problems: Problems) -> list[Window]:
    """Marks the windows that the recording doesn't hold whole."""
    # A file that was cut off has lost its end marks; what it still holds ends with its last device event.
    end = recorded.record_end_ns
    lost = problems.count("cut_off")
    if lost and len(recorded.device.end_ns):
        last = int(recorded.device.end_ns.max())
        end = last if end is None else min(end, last)
    for window in found:
        late = end is not None and window.end_ns > end and window.source.startswith("cpu" if not lost else "")
        early = recorded.record_start_ns is not None and window.start_ns < recorded.record_start_ns
        window.cut = bool(late or early)
    problems.add("cut_step", sum(w.cut for w in found))
    return sorted(found, key=lambda w: (w.start_ns, w.name))
