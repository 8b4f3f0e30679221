"""Reads one trace file of any supported kind, and returns its ranks and devices."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

from wirecost.text import encodable
from wirecost.trace.ascend import ascend_recorded, is_ascend
from wirecost.trace.classify import Classifier
from wirecost.trace.devices import split_devices
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.events import Collector
from wirecost.trace.families import HOST_ANNOTATIONS
from wirecost.trace.foreign import WANTED, refuse_events, refuse_head, refuse_keys
from wirecost.trace.jax import is_jax, jax_recorded
from wirecost.trace.rank import Options, RankTrace, build_rank
from wirecost.trace.recorded import Recorded
from wirecost.trace.reduction import is_reduction, read_reduction
from wirecost.trace.source import SQLITE, NoDeviceEvents, Progress, TraceError, chunks, magic
from wirecost.trace.stream import EventStream, read_events
from wirecost.trace.typed import EventDecoder


def read_file(path: Path, options: Options, progress: Progress | None = None) -> list[RankTrace]:
    """Reads a file: one rank, each process of an Nsight Systems export, or each device of a file with several.

    Raises:
        TraceError: if the file is not a trace.
        ForeignFile: for a file of another tool.
        NoDeviceEvents: for a trace of the host only.
    """
    # Millions of short-lived objects without a cycle among them: looking for cycles costs a tenth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _read_file(path, options, progress)
    finally:
        if collecting:
            gc.enable()


def _read_file(path: Path, options: Options, progress: Progress | None) -> list[RankTrace]:
    classifier = Classifier(options.comm_patterns)
    head = magic(path)
    if is_reduction(head):
        traces = read_reduction(path, options)
        if progress is not None:
            progress(path.stat().st_size)
        return traces
    refuse_head(path, head)
    named_traces: list[tuple[str, RankTrace]] = []
    if not head.startswith(SQLITE):
        diagnostics = DiagnosticCounts()
        recorded, count = _recorded(path, classifier, diagnostics, progress)
        named_traces = _ranks(path, recorded, "", count, options, classifier, diagnostics)
    else:
        from wirecost.trace.nsys import Export

        with Export(path) as export:
            several = export.processes()
            for number, process in enumerate(several):
                diagnostics = DiagnosticCounts()
                recorded, count = export.recorded(classifier, diagnostics, process)
                name = f"process {number}" if len(several) > 1 else ""
                named_traces += _ranks(path, recorded, name, count, options, classifier, diagnostics)
        if progress is not None:
            progress(path.stat().st_size)
    if len(named_traces) > 1:
        # In this case the file's name is that of the node, not of a rank.
        for name, trace in named_traces:
            trace.file, trace.rank, trace.rank_source = f"{encodable(str(path))} ({encodable(name)})", None, "part"
    return [trace for _, trace in named_traces]


def _ranks(
    path: Path,
    recorded: Recorded,
    name: str,
    count: int,
    options: Options,
    classifier: Classifier,
    diagnostics: DiagnosticCounts,
) -> list[tuple[str, RankTrace]]:
    """Returns (name, trace) of each recorded device."""
    named_traces = []
    for device, part in split_devices(recorded, diagnostics):
        own = diagnostics.copy()
        label = ", ".join(n for n in (name, f"device {device}" if device else "") if n)
        named_traces.append(
            (label, build_rank(path, part, count=count, options=options, classifier=classifier, diagnostics=own))
        )
    return named_traces


def _recorded(
    path: Path, classifier: Classifier, diagnostics: DiagnosticCounts, progress: Progress | None
) -> tuple[Recorded, int]:
    decoder = EventDecoder()
    recorded, count = _pass(path, Collector(classifier, diagnostics, decoder), decoder, diagnostics, progress)
    host_only = [a for a in recorded.cpu_annotations if a.name.startswith(HOST_ANNOTATIONS)]
    if len(recorded.device.start_ns) == 0 and host_only:
        # In a run on CPUs the operators are the compute. Only a second pass keeps them.
        unsaid = DiagnosticCounts()
        collector = Collector(classifier, unsaid, decoder, keep_cpu=True)
        recorded, count = _pass(path, collector, decoder, unsaid, None)
    return recorded, count


def _pass(
    path: Path,
    collector: Collector,
    decoder: EventDecoder,
    diagnostics: DiagnosticCounts,
    progress: Progress | None,
) -> tuple[Recorded, int]:
    data = chunks(path, diagnostics, progress)
    first = next(data, b"")
    refuse_head(path, first[:1024])
    stream = EventStream(itertools.chain([first] if first else [], data), diagnostics, decoder)
    count = read_events(path, stream, collector)
    if not stream.saw_events:
        refuse_keys(path, stream.keys)
        keys = ", ".join(repr(key[:30]) for key in stream.keys[:5])
        raise TraceError(
            f"{path}: has no list 'traceEvents'{f' (it has {keys})' if keys else ''}; expected {WANTED}"
        )
    recorded = collector.finish(stream.metadata)
    if len(recorded.device.start_ns) == 0:
        recorded = _other_profilers(path, collector, recorded)
    elif collector.lanes.count:
        diagnostics.add("event_without_category", collector.lanes.count)
    nothing = len(recorded.device.start_ns) == 0 and not recorded.cpu_annotations and not collector.operators
    if nothing and not diagnostics.count("cut_off"):
        refuse_events(
            path,
            count=count,
            phases=collector.phases,
            names=collector.unknown,
            strays=diagnostics.count("stray_element"),
        )
    return recorded, count


def _other_profilers(path: Path, collector: Collector, recorded: Recorded) -> Recorded:
    """Returns the device work of a profiler that writes no categories (JAX, Ascend); `recorded` for any other
    file.
    """
    names = collector.lanes.process_names()
    try:
        if is_jax(names):
            converted = jax_recorded(collector.lanes.finish())
        elif is_ascend(names):
            converted = ascend_recorded(collector.lanes.finish())
            converted.cpu_annotations = converted.cpu_annotations or recorded.cpu_annotations
        else:
            collector.uncategorised()
            return recorded
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from error
    converted.metadata = recorded.metadata
    return converted


def require_device(traces: list[RankTrace]) -> None:
    """Raises NoDeviceEvents if none of the traces has work to split."""
    if not traces or any(t.parts is not None for t in traces):
        return
    host = sum(t.host_collectives for t in traces)
    host_only = f" (it records {host} collective{'s' * (host > 1)} of the host alone)" if host else ""
    raise NoDeviceEvents(
        f"{traces[0].file}: no device events{host_only}: record them with torch.profiler.profile(activities="
        "[ProfilerActivity.CPU, ProfilerActivity.CUDA]) (ProfilerActivity.XPU on Intel GPUs)"
    )
