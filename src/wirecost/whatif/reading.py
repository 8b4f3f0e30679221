"""Reads one rank's trace for a replay: device work, host calls, and what changing the job needs of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from wirecost.trace.classify import Classifier
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.events import Collector
from wirecost.trace.families import HOST_ANNOTATIONS
from wirecost.trace.foreign import refuse_head
from wirecost.trace.identity import parse_rank_options, rank_by_option
from wirecost.trace.jumps import without_jumps
from wirecost.trace.rank import Options, RankTrace, build_rank
from wirecost.trace.read import find_files
from wirecost.trace.recorded import Int64, Recorded
from wirecost.trace.source import SQLITE, TraceError, chunks, magic
from wirecost.trace.stream import EventStream, Slice, named_error, read_events
from wirecost.trace.typed import EventDecoder, Work
from wirecost.whatif.cpu_recording import CpuCollector, CpuRecording, cpu_recording

ACCUMULATE = "torch::autograd::AccumulateGrad"
"""Operator in which autograd adds to a parameter's gradient, once a parameter and backward pass."""
BUCKET_COPY = ("torch::distributed::reducer::mul_out", "torch::distributed::reducer::copy_bucket_to_grad")


@dataclass
class RankRecord:
    """One rank's trace: `trace` is its summary, `recorded` its events on the file's own clock in ns.

    `call_rows` holds the row of the device event of each communication call of `trace.calls`; `blocks` the number
    of thread blocks of each device event (-1 unknown); `gradients` the (start, end) of each accumulation of a
    gradient on the host in order of its end.
    """

    trace: RankTrace
    recorded: Recorded
    call_rows: Int64
    blocks: Int64
    gradients: Int64
    gradient_threads: Int64
    bucket_copies: Int64 = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    diagnostics: DiagnosticCounts = field(default_factory=DiagnosticCounts)
    waits: list[tuple[int, int]] | None = None  # (waiter, source) by row of the device, where they are known

    @property
    def name(self) -> str:
        rank = "?" if self.trace.rank is None else self.trace.rank
        return f"rank {rank} ({self.trace.file})"


class _ReplayCollector(Collector):
    """Keeps, beside what every trace's reader keeps, grids of kernels and the accumulation of gradients."""

    def __init__(self, classifier: Classifier, diagnostics: DiagnosticCounts, decoder: EventDecoder) -> None:
        super().__init__(classifier, diagnostics, decoder)
        self.grids: dict[int, int] = {}  # hash of a grid -> number of its blocks
        self.gradients: list[tuple[int, int, int]] = []
        self.copies: list[tuple[int, int]] = []
        self._again_decoder = decoder

    def add(self, slice_: Slice) -> None:
        """Takes a slice of events."""
        rows = []
        for number, event in enumerate(slice_.events):
            if isinstance(event, Work):
                grid = event.args.grid
                if grid is not None:
                    self.grids[hash(grid)] = grid[0] * grid[1] * grid[2]
            elif getattr(event, "name", None) == ACCUMULATE or getattr(event, "name", None) in BUCKET_COPY:
                rows.append(number)
        for event in self._again_decoder.again(slice_.text, rows) if rows else ():
            span = self._span(event)
            if span is None:
                continue
            if bytes(event.name).strip(b'"').decode("utf-8", "replace") == ACCUMULATE:
                self.gradients.append((*span, self._host.thread_of(event)))
            else:
                self.copies.append((*span,))
        super().add(slice_)


def read_ranks(paths: Sequence[str | Path], *, ranks: Iterable[str] = ()) -> list[RankRecord]:
    """Returns the traces of one job in order of rank.

    Args:
        paths: files, directories and globs of traces that PyTorch's profiler wrote.
        ranks: `FILE=RANK` for files that don't tell their rank.

    Raises:
        TraceError: if nothing can be read, or ranks can't be told apart.
    """
    told = parse_rank_options(ranks)
    records: list[RankRecord] = []
    for path in find_files(list(paths)):
        record = _read(path)
        given = rank_by_option(path, told)
        if given is not None:
            record.trace.rank, record.trace.rank_source = given, "told"
        records.append(record)
    by_rank: dict[int | None, RankRecord] = {}
    for record in records:
        if record.trace.rank is None and len(records) > 1:
            raise TraceError(
                f"{record.trace.file}: can't tell its rank, neither from distributedInfo nor from a name like "
                f"rank3_...; say it with --rank '{Path(record.trace.file).name}=3'"
            )
        other = by_rank.setdefault(record.trace.rank, record)
        if other is not record:
            raise TraceError(
                f"{other.trace.file} and {record.trace.file} both claim rank {record.trace.rank}; give the traces "
                "of one run, one file a rank"
            )
    _check_one_job(records)
    return sorted(records, key=lambda r: r.trace.rank or 0)


def _check_one_job(records: Sequence[RankRecord]) -> None:
    """Refuses traces of jobs of different sizes, and of processors beside those of GPUs."""
    first: dict[int, RankRecord] = {}
    for record in records:
        if record.trace.world_size is not None:
            first.setdefault(record.trace.world_size, record)
    if len(first) > 1:
        (size, one), (other_size, other) = list(first.items())[:2]
        raise TraceError(
            f"{one.trace.file} is of a job of {size} ranks and {other.trace.file} of one of {other_size}; give "
            "the traces of one run"
        )
    kinds = {record.waits is not None for record in records}
    if len(kinds) > 1:
        raise TraceError("some traces are of GPUs and others of processors; give the traces of one run")


def _read(path: Path) -> RankRecord:
    classifier, diagnostics, decoder = Classifier(), DiagnosticCounts(), EventDecoder()
    head = magic(path)
    refuse_head(path, head)
    if head.startswith(SQLITE):
        raise TraceError(
            f"{path}: an Nsight Systems export; whatif replays traces of torch.profiler (JSON) only, "
            "`wirecost trace` reads this one"
        )
    collector = _ReplayCollector(classifier, diagnostics, decoder)
    stream = EventStream(chunks(path, diagnostics), diagnostics, decoder)
    count = read_events(path, stream, collector)
    if not stream.saw_events:
        raise TraceError(f"{path}: holds no list 'traceEvents'; expected a trace of torch.profiler")
    recorded = without_jumps(collector.finish(stream.metadata), diagnostics)
    waits = None
    if len(recorded.device.start_ns) == 0 and any(
        a.name.startswith(HOST_ANNOTATIONS) for a in recorded.cpu_annotations
    ):
        cpu = _read_cpu(path, classifier, decoder)
        recorded, waits = cpu.recorded, cpu.waits
    if len(recorded.device.start_ns) == 0:
        cut_off = diagnostics.count("cut_off")
        cut = "the file is cut off before any device event" if cut_off else "no device events"
        raise TraceError(
            f"{path}: {cut}; whatif replays traces of GPUs, recorded with torch.profiler.profile(activities="
            "[ProfilerActivity.CPU, ProfilerActivity.CUDA]), and of processors with gloo (`wirecost trace` reads "
            "those of other profilers)"
        )
    if not (recorded.launch >= 0).any():
        raise TraceError(
            f"{path}: no launch of any kernel is recorded, so nothing tells what waits for what; record "
            "ProfilerActivity.CPU too"
        )
    trace = build_rank(
        path, recorded, count=count, options=Options(), classifier=classifier, diagnostics=diagnostics
    )
    device = recorded.device
    rows = np.flatnonzero(device.comm)
    rows = rows[np.lexsort((rows, device.end_ns[rows], device.start_ns[rows]))]
    blocks = np.array([collector.grids.get(int(s), -1) for s in np.unique(device.shape)], dtype=np.int64)
    blocks = blocks[np.searchsorted(np.unique(device.shape), device.shape)] if len(blocks) else device.shape
    gradients = np.array(sorted(collector.gradients, key=lambda g: g[1]), dtype=np.int64).reshape(-1, 3)
    copies = np.array(sorted(collector.copies), dtype=np.int64).reshape(-1, 2)
    return RankRecord(
        trace=trace,
        recorded=recorded,
        call_rows=rows,
        blocks=blocks,
        gradients=gradients[:, :2],
        gradient_threads=gradients[:, 2],
        bucket_copies=copies,
        diagnostics=diagnostics,
        waits=waits,
    )


def _read_cpu(path: Path, classifier: Classifier, decoder: EventDecoder) -> CpuRecording:
    """Returns the recording of a rank on processors, from a second pass that keeps its operators."""
    diagnostics = DiagnosticCounts()
    collector = CpuCollector(classifier, diagnostics, decoder)
    stream = EventStream(chunks(path, diagnostics), diagnostics, decoder)
    read_events(path, stream, collector)
    try:
        return cpu_recording(collector, collector.finish(stream.metadata))
    except TraceError as error:
        raise named_error(path, error) from error
