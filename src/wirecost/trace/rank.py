"""One rank: from the columns of a file to its parts, iterations and communication calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wirecost.breakdown import Parts, split_window
from wirecost.breakdown.intervals import Intervals, merge
from wirecost.diagnostics import Diagnostic
from wirecost.text import encodable
from wirecost.trace.calls import Calls, IterationParts, build_calls
from wirecost.trace.categories import KERNEL
from wirecost.trace.classify import Classifier
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.evidence import KernelUse, decide, kernel_uses
from wirecost.trace.families import HOST_ANNOTATIONS
from wirecost.trace.identity import distributed_info, host_name, rank_by_name
from wirecost.trace.idle import IdleUse, idle_uses
from wirecost.trace.jumps import without_jumps
from wirecost.trace.numbers import LIMIT_NS
from wirecost.trace.operations import operation
from wirecost.trace.recorded import Call, Columns, Recorded
from wirecost.trace.slowdown import Slowdown, slowdowns
from wirecost.trace.timeline import Timeline
from wirecost.trace.windows import windows

# Unix time of 2001-09-09 in ns: a start beyond it is absolute by itself, without a base time.
_ABSOLUTE_NS = 10**18


class Options(msgspec.Struct, frozen=True):
    """How to read: the iterations' windows (see `windows.check_choice`), patterns of more communication, and of
    how many stretches a drawable time line may be (0: none is wanted)."""

    window: str = "auto"
    comm_patterns: tuple[str, ...] = ()
    timeline_segments: int = 0


class RankTrace(msgspec.Struct):
    """The content of one file. Times are ns on the file's clock plus its base time; `parts` is None without
    events.
    """

    file: str
    rank: int | None
    rank_source: str
    world_size: int | None
    backend: str | None
    device: str  # "gpu" or "cpu": whose time line it is
    absolute_clock: bool
    resolution_ns: int
    start_ns: int
    end_ns: int
    parts: Parts | None
    iterations: list[IterationParts]
    calls: Calls
    diagnostics: list[Diagnostic]
    events: int
    kernels: list[KernelUse] = []
    slowdowns: list[Slowdown] = []
    host_collectives: int = 0  # annotations of collectives on the host
    timeline: Timeline | None = None
    base_ns: int = 0  # the time that was added to the times of the file
    idle: list[IdleUse] = []  # of each iteration; of the whole window without iterations
    host: str | None = None  # name of the host, where the trace tells it


def build_rank(
    path: Path,
    recorded: Recorded,
    *,
    count: int,
    options: Options,
    classifier: Classifier,
    diagnostics: DiagnosticCounts,
) -> RankTrace:
    """Returns the trace of one device of a file."""
    recorded = without_jumps(recorded, diagnostics)
    info = distributed_info(recorded.metadata)
    rank, source = info.get("rank"), "distributedInfo"
    if rank is None:
        rank, source = rank_by_name(path), "file name"
        if rank is not None and info.get("world_size") is not None and rank >= info["world_size"]:
            rank = None
    if rank is None:
        source = "unknown"
    columns, device = recorded.device, "gpu"
    if len(columns.start_ns) == 0:
        columns, device = _host_columns(recorded), "cpu"
        diagnostics.add("cpu_only" if len(columns.start_ns) else "no_device_events", int(columns.comm.sum()) or 1)
    if device == "gpu":
        decide(recorded, classifier, diagnostics)
    base, based = _base_ns(recorded.metadata, diagnostics)
    sets = _sets(columns)
    rank_windows = windows(recorded, options.window, diagnostics, classifier.communicates)
    timed = columns.end_ns > columns.start_ns
    parts, start, end = None, 0, 0
    if timed.any():
        start, end = int(columns.start_ns[timed].min()), int(columns.end_ns[timed].max())
        parts = split_window(start, end, compute=sets[0], comm=sets[1], memory=sets[2])
    iterations = [
        IterationParts(w, split_window(w.start_ns, w.end_ns, compute=sets[0], comm=sets[1], memory=sets[2]))
        for w in rank_windows
        if parts is not None
    ]
    calls = build_calls(columns, sets, recorded, iterations, diagnostics, on_host=device == "cpu")
    slower = slowdowns(columns, sets[1], calls) if device == "gpu" else []
    diagnostics.add("nsys_inferred", len(calls) if recorded.names_only else 0)
    diagnostics.add("overlap_on_stream", _overlaps(columns, recorded.sub_microsecond))
    world = info.get("world_size")
    diagnostics.add("no_communication", bool(world and world > 1 and parts is not None and len(calls) == 0))
    timeline = None
    if options.timeline_segments and parts is not None:
        timeline = Timeline.of(start, end, *sets, columns=columns, base_ns=base, limit=options.timeline_segments)
    spans = [(i.window.start_ns, i.window.end_ns) for i in iterations] or [(start, end)] * (parts is not None)
    idle = idle_uses(recorded, sets, spans) if device == "gpu" else []
    for iteration in iterations:
        iteration.window.start_ns += base
        iteration.window.end_ns += base
    calls.start_ns += base
    calls.end_ns += base
    calls.own_start_ns += base
    calls.exposed += base
    return RankTrace(
        file=encodable(str(path)),
        rank=rank,
        rank_source=source,
        world_size=world,
        backend=info.get("backend"),
        device=device,
        absolute_clock=based or start + base > _ABSOLUTE_NS,
        resolution_ns=1 if recorded.sub_microsecond else 1000,
        start_ns=start + base,
        end_ns=end + base,
        parts=parts,
        iterations=iterations,
        calls=calls,
        diagnostics=diagnostics.listed(),
        events=count,
        kernels=kernel_uses(columns),
        slowdowns=slower,
        host_collectives=sum(r.annotation for r in recorded.host_ranges),
        timeline=timeline,
        base_ns=base,
        idle=idle,
        host=host_name(recorded.metadata),
    )


def _base_ns(metadata: dict[str, Any], diagnostics: DiagnosticCounts) -> tuple[int, bool]:
    """Returns the base time in ns, and whether the file has one."""
    base = metadata.get("baseTimeNanoseconds")
    if base is None:
        return 0, False
    if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < LIMIT_NS:
        return base, True
    diagnostics.add("broken_metadata", detail="baseTimeNanoseconds")
    return 0, False


def _sets(columns: Columns) -> tuple[Intervals, Intervals, Intervals]:
    """Returns merged (compute, communication, copies and fills)."""
    spans = np.stack([columns.start_ns, columns.end_ns], axis=1)
    kernel = columns.kind == KERNEL
    return merge(spans[kernel & ~columns.comm]), merge(spans[columns.comm]), merge(spans[~kernel & ~columns.comm])


def _host_columns(recorded: Recorded) -> Columns:
    """Returns the CPU's time line of a run without a device: operators compute, annotated collectives
    communicate."""
    comm = [a for a in recorded.cpu_annotations if a.name.startswith(HOST_ANNOTATIONS)]
    ops = recorded.cpu_ops if comm else []
    spans = np.array([(a.start_ns, a.end_ns) for a in comm] + ops, dtype=np.int64).reshape(-1, 2)
    names = [a.name for a in comm] + ["cpu operators"]
    n = len(spans)
    return Columns(
        start_ns=spans[:, 0],
        end_ns=spans[:, 1],
        kind=np.zeros(n, dtype=np.int8),
        name=np.minimum(np.arange(n), len(comm)),
        stream=np.arange(n),  # threads may overlap; that is no finding
        comm=np.arange(n) < len(comm),
        names=names,
        streams=[("cpu", str(i)) for i in range(n)] if n else [],
        calls={i: Call(op=operation(a.name), op_source="annotation") for i, a in enumerate(comm)},
        why=np.where(np.arange(n) < len(comm), 0, 1).astype(np.int64),
        reasons=["annotation of the host", "operators of the host"],
    )


def _overlaps(columns: Columns, sub_microsecond: bool) -> int:
    """Returns how many device events start before the one before on their stream ends, by more than the
    resolution."""
    if len(columns.start_ns) < 2:
        return 0
    slack = 0 if sub_microsecond else 1000
    order = np.lexsort((columns.end_ns, columns.start_ns, columns.stream))
    stream, start, end = columns.stream[order], columns.start_ns[order], columns.end_ns[order]
    return int(((stream[1:] == stream[:-1]) & (start[1:] + slack < end[:-1])).sum())
